"""The experiments behind the guarantees, small: the other designs break where they are known to, ours only where it says so.

The numbers in docs/quest.md are of a longer run than there is time for here; `fern quest --check` makes it. What is checked of
that page are the rows of single misfortunes, and that its chart shows its own numbers.
"""

import asyncio
import json
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from e2e.experiments.quest.__main__ import CHART, LABOURS, PAGE, SEED, quest
from e2e.experiments.quest.designs import LedgerAndAsking
from e2e.experiments.quest.misfortune import FAULTS
from e2e.experiments.quest.pipelines import DESIGNS, DualWrite, Ours, RecordBeforeSend
from e2e.experiments.quest.race import Fate, race
from e2e.experiments.quest.report import MEANINGS, RIGHT, Report, schedule, section, svg
from e2e.experiments.quest.schedule import MISFORTUNES, draw
from e2e.experiments.quest.sms import broken, experiment
from e2e.support.databases import fresh_database
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ROOT

# The designs

DRAWN = 8
ALONE = 1 + len(MISFORTUNES)


@pytest.fixture(scope="module")
def fates(postgres: TemporaryServer) -> dict[str, list[Fate]]:
    return asyncio.run(race(postgres, schedule(SEED, DRAWN, {}), DESIGNS))


def test_each_design_breaks_where_it_is_known_to_and_nowhere_else(fates: dict[str, list[Fate]]) -> None:
    twice_in_the_text = dict.fromkeys(("reply-lost", "created-500", "crash-after-call"), "duplicated")
    twice_in_the_bus = dict.fromkeys(("duplicate", "crash-before-ack", "forget-acks"), "duplicated")
    known = {
        "dual write": {"crash-before-publish": "lost", "refuse-publish": "lost"} | twice_in_the_bus | twice_in_the_text,
        "publish, then commit": {"crash-before-commit": "duplicated", "crash-after-publish": "duplicated"}
        | {"rollback": "phantom"}
        | twice_in_the_bus
        | twice_in_the_text,
        "outbox, naive consumer": {"crash-after-publish": "duplicated"} | twice_in_the_bus | twice_in_the_text,
        "claims, send inside": twice_in_the_text,
        "record, then send": {"crash-before-call": "lost", "request-lost": "lost"},
        "ours": {},
    }

    alone = Report.of(SEED, {}, DRAWN, fates).alone

    for name, met in alone.items():
        assert {misfortune: fate for misfortune, fate in met.items() if fate not in RIGHT} == known[name], name
        assert met["nothing"] is Fate.ONCE


def test_our_design_tells_everybody_once_and_of_nothing_that_was_rolled_back(fates: dict[str, list[Fate]]) -> None:
    expected = [Fate.NONE if "rollback" in met else Fate.ONCE for met in schedule(SEED, DRAWN, {})]

    assert fates[Ours.name] == expected
    assert Report.of(SEED, {}, DRAWN, fates).broken == []


def test_the_same_seed_gives_every_labour_the_same_fate_in_any_order_of_the_designs_and_in_other_company(
    postgres: TemporaryServer, fates: dict[str, list[Fate]]
) -> None:
    drawn = schedule(SEED, DRAWN, {})[ALONE:]

    again = asyncio.run(race(postgres, drawn[::-1], DESIGNS[::-1]))

    assert again == {name: all_[ALONE:][::-1] for name, all_ in fates.items()}


def test_a_design_that_breaks_its_word_under_our_name_is_found_out(fates: dict[str, list[Fate]]) -> None:
    assert Report.of(SEED, {}, DRAWN, fates | {Ours.name: fates[DualWrite.name]}).broken == [Fate.LOST, Fate.DUPLICATED]
    assert Report.of(SEED, {}, DRAWN, fates | {Ours.name: fates[RecordBeforeSend.name]}).broken == [Fate.LOST]


def test_what_hits_a_labour_depends_on_the_seed_and_its_number_and_grows_with_the_rate() -> None:
    usual, more = draw(7, 3, {}), draw(7, 3, dict.fromkeys(MISFORTUNES, 0.5))

    assert draw(7, 3, {}) == usual < more
    assert draw(7, 3, dict.fromkeys(MISFORTUNES, 1.0)) == set(MISFORTUNES)
    assert draw(7, 3, dict.fromkeys(MISFORTUNES, 0.0)) == set()
    assert len({draw(seed, number, {}) for seed in range(5) for number in range(5)}) > 5


# The page


def test_the_page_tells_what_each_misfortune_does_alone(fates: dict[str, list[Fate]]) -> None:
    marker = "And this became of a labour"
    current = section(Report.of(SEED, {}, LABOURS, fates)).partition(marker)[2]

    assert current in PAGE.read_text(), "run `fern quest`: it writes docs/quest.md"


def test_the_chart_shows_the_numbers_of_the_page_in_shapes_and_in_words() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines()]
    counts = {
        row[0]: dict(zip(MEANINGS, map(int, row[1:]), strict=True))
        for row in rows
        if row[0] in {design.name for design in DESIGNS} and row[1].isdigit()
    }

    chart = CHART.read_text()

    assert chart == svg(counts), "run `fern quest`: it writes the chart"
    assert [sum(fates.values()) for fates in counts.values()] == [LABOURS] * len(DESIGNS)
    drawing = ET.fromstring(chart)
    said = drawing.findtext("{*}desc") or ""
    for name, fates in counts.items():
        assert f"{name}: " + ", ".join(f"{number} {fate}" for fate, number in fates.items() if number) in said


# The command


def test_the_command_lists_what_can_go_wrong_through_fern_as_well() -> None:
    command = [sys.executable, "-m", "fern", "quest", "--list", "--json"]
    listed = json.loads(subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, check=True, timeout=60).stdout)

    assert [one["name"] for one in listed] == list(MISFORTUNES)


@pytest.mark.parametrize(
    ("rate", "advice"),
    [("reply-los=0.2", "--rate reply-lost=0.2"), ("rollback=2", "--rate rollback=0.5"), ("duplicate", "duplicate=0.5")],
)
def test_a_rate_that_makes_no_sense_is_answered_with_one_that_does(rate: str, advice: str) -> None:
    answer = CliRunner().invoke(quest, ["--rate", rate])

    assert answer.exit_code == 2
    assert advice in answer.output


# The last hurdle alone

MESSAGES = 4


@pytest.fixture(scope="module")
def results(postgres: TemporaryServer) -> Any:
    async def run() -> Any:
        url = await fresh_database(postgres, "notification")
        return await experiment(url, messages=MESSAGES, seed=1, progress=lambda name, seconds: None)

    return {result.fault: result for result in asyncio.run(run())}


def test_every_way_to_send_meets_every_fault_and_everybody_is_counted(results: Any) -> None:
    assert list(results) == [fault.name for fault in FAULTS]
    for result in results.values():
        assert [sum((count.lost, count.duplicated, count.once)) for count in result.counts.values()] == [MESSAGES] * 3


def test_ledger_and_asking_tells_everybody_once_except_where_the_guarantees_say_otherwise(results: Any) -> None:
    assert broken(list(results.values())) == []
    for result in results.values():
        ours = result.counts[LedgerAndAsking.name]
        assert ours.lost == 0
        assert result.remains or ours.duplicated == 0


def test_sending_inside_the_claim_doubles_and_never_loses(results: Any) -> None:
    for fault in ("reply lost", "created, but answered 500", "crash after the reply", "crash before the last commit"):
        assert results[fault].counts["send in the claim"].duplicated > 0
    assert sum(result.counts["send in the claim"].lost for result in results.values()) == 0


def test_recording_first_loses_and_never_doubles(results: Any) -> None:
    for fault in ("request lost", "crash after the record, before the call"):
        assert results[fault].counts["record, then send"].lost > 0
    assert sum(result.counts["record, then send"].duplicated for result in results.values()) == 0

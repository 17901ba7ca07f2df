"""The quest with few labours: every other design breaks where it is known to break, and ours only where the guarantees say so.

The numbers in docs/quest.md come from a longer run than there is time for here; `fern quest --check` repeats it. These tests
compare the rows of single faults with that page, and the page's numbers with its chart.
"""

import asyncio
import json
import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from e2e.experiments.quest import sms
from e2e.experiments.quest.__main__ import CHART, LABOURS, PAGE, SEED, quest
from e2e.experiments.quest.chart import in_words, svg
from e2e.experiments.quest.designs import DESIGNS, DualWrite, Ours, RecordBeforeSend
from e2e.experiments.quest.environment import LabourOutcome
from e2e.experiments.quest.faults import FAULTS, draw
from e2e.experiments.quest.report import RIGHT, STYLES, QuestReport, schedule, section
from e2e.experiments.quest.risks import Risks, measure_window
from e2e.experiments.quest.runner import run_designs
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ROOT

DRAWN = 8
ALONE = 1 + len(FAULTS)

Outcomes = dict[str, list[LabourOutcome]]


@pytest.fixture(scope="module")
def outcomes(postgres: TemporaryServer) -> Outcomes:
    return asyncio.run(run_designs(postgres, schedule(SEED, DRAWN, {}), DESIGNS))


def test_each_design_breaks_where_it_is_known_to_and_nowhere_else(outcomes: Outcomes) -> None:
    at_the_provider = dict.fromkeys(("reply-lost", "created-500", "crash-after-call"), "duplicated")
    at_the_bus = dict.fromkeys(("duplicate", "crash-before-ack", "forget-acks"), "duplicated")
    known = {
        "dual write": {"crash-before-publish": "lost", "refuse-publish": "lost"} | at_the_bus | at_the_provider,
        "publish, then commit": {"crash-before-commit": "duplicated", "crash-after-publish": "duplicated"}
        | {"rollback": "phantom"}
        | at_the_bus
        | at_the_provider,
        "outbox, naive consumer": {"crash-after-publish": "duplicated"} | at_the_bus | at_the_provider,
        "claims, send inside": at_the_provider,
        "record, then send": {"crash-before-call": "lost", "request-lost": "lost"},
        "ours": {},
    }

    alone = QuestReport.of(SEED, {}, DRAWN, outcomes).alone

    for name, by_fault in alone.items():
        assert {fault: outcome for fault, outcome in by_fault.items() if outcome not in RIGHT} == known[name], name
        assert by_fault["nothing"] is LabourOutcome.ONCE


def test_our_design_sends_every_text_once_and_none_for_what_was_rolled_back(outcomes: Outcomes) -> None:
    expected = [
        LabourOutcome.NONE if "rollback" in faults else LabourOutcome.ONCE for faults in schedule(SEED, DRAWN, {})
    ]

    assert outcomes[Ours.name] == expected
    assert QuestReport.of(SEED, {}, DRAWN, outcomes).broken == []


def test_an_outcome_depends_on_the_seed_and_neither_on_the_order_of_designs_nor_on_other_labours(
    postgres: TemporaryServer, outcomes: Outcomes
) -> None:
    drawn = schedule(SEED, DRAWN, {})[ALONE:]

    again = asyncio.run(run_designs(postgres, drawn[::-1], DESIGNS[::-1]))

    assert again == {name: all_[ALONE:][::-1] for name, all_ in outcomes.items()}


def test_a_broken_design_under_the_name_of_ours_is_reported(outcomes: Outcomes) -> None:
    def broken(design: type[DualWrite]) -> list[LabourOutcome]:
        return QuestReport.of(SEED, {}, DRAWN, outcomes | {Ours.name: outcomes[design.name]}).broken

    assert broken(DualWrite) == [LabourOutcome.LOST, LabourOutcome.DUPLICATED]
    assert broken(RecordBeforeSend) == [LabourOutcome.LOST]


def test_the_faults_of_a_labour_depend_on_the_seed_and_its_number_and_grow_with_the_rate() -> None:
    usual, more = draw(7, 3, {}), draw(7, 3, dict.fromkeys(FAULTS, 0.5))

    assert draw(7, 3, {}) == usual < more
    assert draw(7, 3, dict.fromkeys(FAULTS, 1.0)) == set(FAULTS)
    assert draw(7, 3, dict.fromkeys(FAULTS, 0.0)) == set()
    assert len({draw(seed, number, {}) for seed in range(5) for number in range(5)}) > 5


# The page


def test_the_page_has_the_outcome_of_each_fault_alone(outcomes: Outcomes) -> None:
    marker = "The outcome when a labour is hit by one fault only"
    current = section(QuestReport.of(SEED, {}, LABOURS, outcomes)).partition(marker)[2]

    assert current in PAGE.read_text(), "run `fern quest`: it writes docs/quest.md"


def test_the_chart_shows_the_numbers_of_the_page_in_shapes_and_in_words() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines()]
    counts = {
        row[0]: dict(zip(STYLES, map(int, row[1:]), strict=True))
        for row in rows
        if row[0] in {design.name for design in DESIGNS} and row[1].isdigit()
    }

    chart = CHART.read_text()

    assert chart == svg(counts, STYLES, RIGHT), "run `fern quest`: it writes the chart"
    assert [sum(numbers.values()) for numbers in counts.values()] == [LABOURS] * len(DESIGNS)
    description = ET.fromstring(chart).findtext("{*}desc") or ""
    for name, numbers in counts.items():
        assert f"{name}: {in_words(numbers)}" in description


# The command


@pytest.mark.system
def test_the_command_lists_the_faults_through_fern_as_well() -> None:
    command = [sys.executable, "-m", "fern", "quest", "--list", "--json"]
    listed = json.loads(subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, check=True, timeout=240).stdout)

    assert [one["name"] for one in listed] == list(FAULTS)


@pytest.mark.parametrize(
    ("rate", "advice"),
    [("reply-los=0.2", "--rate reply-lost=0.2"), ("rollback=2", "--rate rollback=0.5"), ("duplicate", "duplicate=0.5")],
)
def test_an_invalid_rate_is_answered_with_a_valid_one(rate: str, advice: str) -> None:
    answer = CliRunner().invoke(quest, ["--rate", rate])

    assert answer.exit_code == 2
    assert advice in answer.output


# The sending of texts alone

MESSAGES = 4


@pytest.fixture(scope="module")
def sms_results(postgres: TemporaryServer) -> dict[str, sms.ScenarioCounts]:
    outcomes = asyncio.run(run_designs(postgres, sms.all_hits(MESSAGES, seed=1), list(sms.DESIGNS.values())))
    return {result.fault: result for result in sms.count(outcomes, MESSAGES)}


def test_every_design_meets_every_fault_and_every_person_is_counted(sms_results: dict[str, sms.ScenarioCounts]) -> None:
    assert list(sms_results) == [scenario.title for scenario in sms.SCENARIOS]
    for result in sms_results.values():
        assert [sum((one.lost, one.duplicated, one.once)) for one in result.counts.values()] == [MESSAGES] * 3


def test_our_design_texts_everyone_once_except_where_the_guarantees_say_otherwise(
    sms_results: dict[str, sms.ScenarioCounts],
) -> None:
    assert sms.broken(list(sms_results.values())) == []
    for result in sms_results.values():
        ours = result.counts["ledger and asking"]
        assert ours.lost == 0
        assert result.remains or ours.duplicated == 0


def test_sending_inside_the_claim_duplicates_and_never_loses(sms_results: dict[str, sms.ScenarioCounts]) -> None:
    for fault in ("reply lost", "created, but answered 500", "crash after the reply", "crash before the last commit"):
        assert sms_results[fault].counts["send in the claim"].duplicated > 0
    assert sum(result.counts["send in the claim"].lost for result in sms_results.values()) == 0


def test_recording_first_loses_and_never_duplicates(sms_results: dict[str, sms.ScenarioCounts]) -> None:
    for fault in ("request lost", "crash after the record, before the call"):
        assert sms_results[fault].counts["record, then send"].lost > 0
    assert sum(result.counts["record, then send"].duplicated for result in sms_results.values()) == 0


def test_the_table_in_the_guarantees_follows_from_whom_the_faults_hit() -> None:
    """Which faults break a design is tested above; how many people they hit depends on the seed alone."""
    unknown_outcomes = {"reply-lost", "created-500", "created-late", "created-too-late"}
    unknown_outcomes |= {"crash-after-call", "crash-before-record"}
    hidden = ({"created-too-late"}, {"listed-too-late", "reply-lost"}, {"freeze-after-check"})
    page = (PROJECT_ROOT / "docs" / "guarantees.md").read_text()
    for scenario in sms.SCENARIOS:
        hits = [scenario.hits(seed=1, person=person) for person in range(10)]
        doubled = sum(bool(faults & unknown_outcomes) for faults in hits)
        lost = sum(bool(faults & {"crash-before-call", "request-lost"}) for faults in hits)
        doubled_by_ours = sum(any(faults >= combination for combination in hidden) for faults in hits)
        [row] = re.findall(rf"^{scenario.title}(?: \*)?  (.*)$", page, flags=re.MULTILINE)

        assert re.findall(r"\d+ · \d+ · \d+", row) == [
            f"0 · {doubled} · {10 - doubled}",
            f"{lost} · 0 · {10 - lost}",
            f"0 · {doubled_by_ours} · {10 - doubled_by_ours}",
        ]


# What designs lose or repeat in a month


def test_the_risks_of_a_month_follow_from_uptime_and_window() -> None:
    risks = Risks(window=0.02, uptime=99.95, events_a_minute=10, interruptions=3)

    assert round(risks.minutes_down) == 22
    assert round(risks.lost) == 219
    assert risks.repeated == pytest.approx(3 * 10 / 60 * 0.02)


@pytest.mark.usefixtures("bus_host")
async def test_the_window_between_publish_and_mark_is_measured_with_our_relay(labour_url: str) -> None:
    assert await measure_window(labour_url, 3) > 0

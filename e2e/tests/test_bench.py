"""The benchmarks with very little work: every stage runs, all designs of it do the same, and the report has its rows.

No time is checked. A stage raises `WorkMissing` if a design did not do the work it was measured for.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from e2e.experiments.bench import documentation
from e2e.experiments.bench.__main__ import Unreliable, bench, refuse
from e2e.experiments.bench.calibration import Calibration, calibrate, doubts
from e2e.experiments.bench.chart import svg
from e2e.experiments.bench.environment import TOPIC, Environment, WorkMissing, on_server
from e2e.experiments.bench.report import BenchReport, rows, section
from e2e.experiments.bench.runner import Figure, figure, run
from e2e.experiments.bench.stage import Measured, Options, Stage, rotated
from e2e.experiments.bench.stages import STAGES, many, relay
from e2e.experiments.bench.stages.consumer import with_rosters
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ID
from messaging.bus import Outgoing
from messaging.pubsub import PubSub

LITTLE = Options(rounds=1, scale=0.01, seconds=0.5)
STEADY = Calibration(1.0, 1.0, 0.0)


@pytest.fixture(scope="module")
def environment(postgres: TemporaryServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with pytest.MonkeyPatch.context() as patch, on_server(postgres, tmp_path_factory.mktemp("bench")) as environment:
        patch.setenv("PUBSUB_EMULATOR_HOST", environment.bus.target)
        yield environment


@pytest.mark.parametrize(
    "stage", [one for one in STAGES if one not in (relay.STAGE, many.STAGE)], ids=lambda stage: stage.name
)
def test_every_design_of_a_stage_does_the_same_work(environment: Environment, stage: Stage) -> None:
    figures = run(environment, [replace(stage, warm_up=False)], LITTLE, say=lambda line: None)

    assert [(one.stage, one.name) for one in figures] == [(stage.name, name) for name in stage.cases]
    assert all(value > 0 for one in figures for value in one.values)


def test_two_relays_keep_the_order_of_every_key_and_two_consumers_and_apis_handle_everything(
    environment: Environment,
) -> None:
    environment.declare()
    environment.count_published()
    template, labours = with_rosters(environment, 50)

    with ExitStack() as stack:
        local = replace(environment, stack=stack)
        assert many.relays(local, 2, 400).value > 0
        environment.purge()
        assert many.consumers(local, 2, template, labours).value > 0
        assert many.apis(local, 2, 20).value > 0


async def test_relays_do_the_same_work_can_be_profiled_and_are_not_measured_if_the_bus_has_another_number(
    environment: Environment, tmp_path: Path
) -> None:
    path = tmp_path / "profile"
    with ExitStack() as stack:
        local, options = replace(environment, stack=stack), replace(LITTLE, scale=0.2, profile=str(path))
        # In threads, because the stage has event loops of its own.
        measure = await asyncio.to_thread(lambda: stack.enter_context(relay.STAGE.open(local, options)))

        measured = await asyncio.to_thread(measure, 0)

        assert measured.keys() == relay.STAGE.cases.keys()
        found = json.loads(path.read_text())
        assert any("relay.py" in function["file"] for function in found["functions"])
        assert all(function["own"] <= function["whole"] <= found["samples"] for function in found["functions"])

        bus = PubSub(PROJECT_ID)
        await bus.publish(TOPIC, [Outgoing(b"{}", {})])
        await bus.close()
        with pytest.raises(WorkMissing):
            await asyncio.to_thread(measure, 0)


# Without a running system


def figures() -> list[Figure]:
    """Every case of every stage, with made-up values: the n-th case has n, and in the second round ten times that."""
    results = {
        stage.name: [
            {name: Measured(value * factor, 3.0) for value, name in enumerate(names, 1)}
            for names in [[*stage.cases, *{case.against for case in stage.cases.values()} - {"", *stage.cases}]]
            for factor in (1, 10)
        ]
        for stage in STAGES
    }
    return [figure(stage, name, results[stage.name]) for stage in STAGES for name in stage.cases]


def report(*reasons: str) -> BenchReport:
    return BenchReport(figures(), STEADY, STEADY, reasons, "18", LITTLE)


def test_a_ratio_is_taken_within_a_round() -> None:
    [ours] = [one for one in figures() if (one.stage, one.name) == ("relay", "ours")]

    assert (ours.values, ours.ratios, ours.ratio, ours.reached) == ((2, 20), (2, 2), 2, False)


def test_each_round_begins_with_another_case() -> None:
    assert [rotated("abc", number)[0] for number in range(4)] == ["a", "b", "c", "a"]
    assert all(sorted(rotated("abc", number)) == ["a", "b", "c"] for number in range(4))


def test_the_report_has_a_row_for_every_case() -> None:
    titles = [[stage.name, case.title] for stage in STAGES for case in stage.cases.values()]

    assert [row[:2] for row in rows(figures())] == titles
    listed = report().to_json()["figures"]
    assert [[one["stage"], one["title"]] for one in listed] == titles
    assert json.loads(json.dumps(listed))


def test_the_chart_shows_every_ratio_to_the_articles_and_says_it_in_words() -> None:
    drawing = ET.fromstring(svg(figures()))
    [described] = [one.text for one in drawing.iter("{http://www.w3.org/2000/svg}desc")]

    for name in ("api", "relay", "consumer", "sms"):
        assert f"{name}, ours" in str(described)


def test_the_page_has_the_markers_and_every_stage_and_case_of_the_command() -> None:
    page = documentation.PAGE.read_text()
    _, _, rest = page.partition(documentation.BEGIN)
    written, end, after = rest.partition(documentation.END)

    assert end
    in_table = re.findall(r"^\| ([a-z-]+) \| (.+?) \|", written, flags=re.MULTILINE)[1:]
    assert [*in_table] == [(stage.name, case.title) for stage in STAGES for case in stage.cases.values()]
    assert re.findall(r"^\| `([a-z-]+)` \|", after, flags=re.MULTILINE) == [stage.name for stage in STAGES]


def test_writing_the_page_changes_only_what_is_between_the_markers() -> None:
    before, _, rest = documentation.PAGE.read_text().partition(documentation.BEGIN)

    page = documentation.pages(report())[documentation.PAGE]

    assert page.startswith(before)
    assert page.endswith(rest.partition(documentation.END)[2])
    assert section(report()) in page


def test_a_busy_or_unsteady_machine_gives_no_ratios_unless_they_are_wanted_anyway() -> None:
    busy, slower = Calibration(1.0, 1.0, 0.4), Calibration(1.5, 1.0, 0.0)

    assert doubts(STEADY, STEADY) == []
    assert len(doubts(busy, STEADY)) == len(doubts(STEADY, slower)) == 1
    with pytest.raises(Unreliable) as refused:
        refuse(doubts(busy, STEADY), anyway=False, only=["relay"])
    assert refused.value.exit_code == 23
    assert str(refused.value.command).endswith("bench --anyway --only relay")
    refuse(doubts(busy, STEADY), anyway=True, only=[])
    assert "not reliable" in section(report("the machine was busy"))


@pytest.mark.system
def test_the_calibration_measures_work_on_every_core() -> None:
    measured = calibrate(amount=1000)

    assert measured.alone > 0
    assert measured.together > 0


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        (["--only", "relai"], "bench --only relay"),
        (["--profile", "many"], "bench --profile relay"),
        (["--write-docs", "--only", "api"], "bench --write-docs"),
    ],
)
def test_a_wrong_option_is_an_error_with_a_command_to_copy(options: list[str], fix: str) -> None:
    answer = CliRunner().invoke(bench, options)

    assert answer.exit_code == 2
    assert fix in answer.stderr


def test_the_stages_can_be_listed() -> None:
    answer = CliRunner().invoke(bench, ["--list"])

    assert answer.exit_code == 0
    assert [line.split()[0] for line in answer.stdout.splitlines()] == [stage.name for stage in STAGES]

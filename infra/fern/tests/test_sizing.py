"""How many of each process a load needs: the constants are measured ones, and the page shows what the command prints."""

import re
from itertools import pairwise

import pytest
from click.testing import CliRunner

from fern import sizing
from fern.cli import main
from fern.commands.plan import rows
from fern.settings import PROJECT_ROOT
from fern.sizing import plan

DOCS = PROJECT_ROOT / "docs"
RATES = (0, 10, 1000, 100_000, 1_000_000)


@pytest.mark.parametrize("stage", sizing.STAGES, ids=lambda stage: stage.row)
def test_what_a_process_can_do_is_what_was_measured(stage: sizing.Stage) -> None:
    row = re.search(
        rf"^\| {re.escape(stage.row)} \| ([\d,]+) \S+ \| ([\d,.]+) µs", (DOCS / "performance.md").read_text(), re.M
    )

    assert row is not None
    assert [float(number.replace(",", "")) for number in row.groups()] == [stage.per_second, stage.cpu_us]


def test_the_connections_of_a_process_are_those_that_operators_read() -> None:
    rows = re.findall(r"^\| ([a-z-]+) \| \d+ \| \d+ \| \d+ \| (\d+) \|$", (DOCS / "operations.md").read_text(), re.M)

    assert {name: int(share) for name, share in rows} == sizing.CONNECTIONS
    assert sizing.CONNECTIONS.keys() == sizing.WORK.keys()


def test_the_size_of_an_event_and_the_retention_are_the_measured_and_the_default_one() -> None:
    (sizes,) = re.findall(
        r"^\| database size per event \| KB \| ([\d.]+) \| ([\d.]+) \|", (DOCS / "performance.md").read_text(), re.M
    )
    settings = (PROJECT_ROOT / "shared/servicekit/worker_settings.py").read_text()

    assert round(max(map(float, sizes)), 1) == sizing.KB_PER_EVENT
    assert f'"RETENTION_DAYS", {sizing.RETENTION_DAYS}' in settings


def test_more_labours_never_need_less() -> None:
    plans = [plan(rate) for rate in RATES]

    for less, more in pairwise(plans):
        assert all(less.processes[name] <= more.processes[name] for name in sizing.WORK)
        assert all(less.databases[name].vcpus <= more.databases[name].vcpus for name in less.databases)
        assert less.google_cloud <= more.google_cloud
        assert less.sms < more.sms


def test_without_load_there_are_as_many_replicas_as_asked_for() -> None:
    assert set(plan(0).processes.values()) == {2}
    assert set(plan(0, at_least=1).processes.values()) == {1}
    assert plan(0).sms == plan(0).pubsub == 0


def test_no_process_is_used_for_more_than_half_at_the_peak() -> None:
    needed = plan(100_000)

    for name, (stage, pieces) in sizing.WORK.items():
        at_the_peak = 100_000 / 3600 * sizing.PEAK * pieces / needed.processes[name]
        assert at_the_peak <= stage.per_second * sizing.USED


def test_what_is_too_large_for_one_server_is_said() -> None:
    assert plan(1000).databases["labour"].fits
    assert not plan(100_000).databases["labour"].fits


def test_the_page_shows_what_the_command_prints() -> None:
    page = (DOCS / "sizing.md").read_text()

    for command in re.findall(r"^(fern plan.*)$", page, re.M):
        printed = CliRunner().invoke(main, command.split()[1:]).output
        shown = "\n".join(line.rstrip() for line in printed.splitlines())
        assert f"```sh\n{command}\n```\n\n```text\n{shown}\n```" in page, command
    assert "fern plan\n" in page


def test_the_cost_at_rest_and_of_a_thousand_labours_a_day_is_that_of_the_model() -> None:
    page = (DOCS / "deploy-gcp.md").read_text()
    figures = {name: costs for name, *costs in rows([plan(0, at_least=1), plan(42, at_least=1)])}

    for name in ("Cloud Run", "Cloud SQL", "Pub/Sub", "SMS"):
        (found,) = re.findall(rf"^\| {name}[^|]* \| ([\d,]+) \| ([\d,]+) \|$", page, re.M)
        assert list(found) == figures[f"{name}, $ a month"]
    assert "| **Google Cloud** | **{}** | **{}** |".format(*figures["Google Cloud, $ a month"]) in page
    assert f"{sizing.TEXTS} for each labour" in page

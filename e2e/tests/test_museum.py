"""Historical mistakes: with each of them our checks fail, and without it they pass."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from e2e.experiments.museum.__main__ import NOT_ALL_CAUGHT, PAGE, ExhibitResult, conclude, examine, main, page
from e2e.experiments.museum.exhibit import PROMISES, Exhibit
from e2e.experiments.museum.exhibits import EXHIBITS
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ROOT
from pubsub_emulator.server import Running, running

MISTAKES = [
    "outbox after the commit",
    "key in another transaction",
    "mark before publish",
    "poll by greatest id",
    "no ordering across relays",
    "retry until it works",
    "ack on contention",
    "ack before the commit",
    "commit inside the claim",
    "dedup outside the transaction",
    "SELECT, then write",
    "unlock before the commit",
    "deduplicate on the bus's message id",
    "deduplicate on the time",
    "the last sequence of the source",
    "Python's hash() as the lock key",
    "retention shorter than replay",
    "tell those who are known",
    "consent without a lock",
    "send inside the transaction",
    "no look at the clock",
    "no fence around the outcome",
    "one queue for all",
    "the last status wins",
]
MARK_BEFORE_PUBLISH = EXHIBITS[2]


@pytest.fixture
async def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    async with running(tmp_path / "bus") as bus:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", bus.target)
        yield bus


def test_the_museum_holds_these_mistakes_and_no_other_and_one_at_least_for_each_promise() -> None:
    assert [exhibit.title for exhibit in EXHIBITS] == MISTAKES
    assert len({exhibit.name for exhibit in EXHIBITS}) == len(MISTAKES)
    assert {exhibit.breaks for exhibit in EXHIBITS} == set(PROMISES)


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
async def test_our_part_passes_and_the_mistake_is_caught(
    exhibit: Exhibit, postgres: TemporaryServer, bus: Running
) -> None:
    result = await examine(exhibit, postgres, bus)

    assert result.with_ours == []
    assert result.with_mistake == list(exhibit.expected)
    assert result.caught


async def test_a_mistake_that_breaks_nothing_does_not_count_as_caught(postgres: TemporaryServer, bus: Running) -> None:
    harmless = replace(MARK_BEFORE_PUBLISH, mistake=MARK_BEFORE_PUBLISH.ours)

    result = await examine(harmless, postgres, bus)

    assert not result.caught
    assert result.how == "nothing was reported"


async def test_a_check_that_blames_our_own_part_does_not_count_as_catching(
    postgres: TemporaryServer, bus: Running
) -> None:
    blaming = replace(MARK_BEFORE_PUBLISH, ours=MARK_BEFORE_PUBLISH.mistake)

    result = await examine(blaming, postgres, bus)

    assert not result.caught
    assert result.how.startswith("our own part failed: lost: event 1")


def test_a_mistake_that_is_not_caught_has_an_exit_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    caught = ExhibitResult(MARK_BEFORE_PUBLISH, [], list(MARK_BEFORE_PUBLISH.expected), 1.0)
    missed = ExhibitResult(MARK_BEFORE_PUBLISH, [], list(MARK_BEFORE_PUBLISH.expected[:1]), 1.0)

    conclude([caught, caught], as_json=False)
    with pytest.raises(SystemExit) as ended:
        conclude([caught, missed], as_json=False)

    assert ended.value.code == NOT_ALL_CAUGHT == 21
    assert "2 of 2 mistakes caught" in (shown := capsys.readouterr().out)
    assert "1 of 2 mistakes caught" in shown


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    ended = CliRunner().invoke(main, ["mark-after-publish"])

    assert ended.exit_code == 1
    assert "fern museum mark-before-publish" in ended.output
    assert "no-ordering-across-relays" in ended.output


@pytest.mark.system
def test_the_command_runs_one_exhibit_and_prints_the_score() -> None:
    command = [sys.executable, "-m", "fern", "museum", "mark-before-publish", "--json"]
    ended = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=900)

    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["caught"], report["of"]) == (1, 1)
    assert report["exhibits"][0]["with_mistake"] == list(MARK_BEFORE_PUBLISH.expected)
    assert "✓ mark before publish" in ended.stderr


def test_the_page_in_the_docs_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `fern museum --write-page`"

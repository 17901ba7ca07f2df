"""Fifteen ways to count: each design breaks where its page says, and nowhere else. And the test plan of a delta projection,
step by step, for our design.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from e2e.experiments.quest.chart import in_words
from e2e.experiments.quest.deltas import DESIGNS
from e2e.experiments.quest.deltas.command import CHART, COMMAND, LABOURS, SEED, pages
from e2e.experiments.quest.deltas.design import Event, Worker
from e2e.experiments.quest.deltas.misfortunes import MISFORTUNES, draw_plans
from e2e.experiments.quest.deltas.report import RIGHT, DeltasReport
from e2e.experiments.quest.deltas.runner import Pair, TotalOutcome, crash, race, run_designs, waits_for_a_lock, workers
from e2e.experiments.quest.deltas.with_ids import Ours, Recomputation
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging.consumer import Verdict

LESS, MORE = TotalOutcome.TOO_LITTLE, TotalOutcome.TOO_MUCH


@pytest.fixture(scope="module")
def report(postgres: TemporaryServer) -> DeltasReport:
    return DeltasReport(SEED, LABOURS, asyncio.run(run_designs(postgres, draw_plans(SEED, LABOURS), DESIGNS)))


def test_each_design_breaks_where_it_is_known_to_and_nowhere_else(report: DeltasReport) -> None:
    known: dict[str, dict[str, TotalOutcome]] = {
        "add always": {"duplicate": MORE, "race": MORE, "replay": MORE},
        "count + 1 on conflict": {"duplicate": MORE, "race": MORE, "replay": MORE},
        "SELECT, then write": {"race": MORE, "replay": MORE},
        "gate by CTE": {"no row": LESS, "replay": MORE},
        "gate, row ensured": {"replay": MORE},
        "natural key": {"correction": LESS},
        "last version": {"reordering": LESS},
        "source watermark": {"reordering": LESS},
        "contiguous watermark": {},
        "time as the key": {"same time": LESS, "replay": MORE},
        "store beside, mark first": {"crash": LESS, "replay": MORE},
        "store beside, mark last": {"race": MORE, "crash": MORE, "replay": MORE},
        "recomputation": {},
        "posting ledger": {},
        "ours: claim and ledger": {},
    }

    for name, result in report.results.items():
        wrong = {misfortune: set(outcomes) - set(RIGHT) for misfortune, outcomes in result.outcomes.items()}
        assert {misfortune: kinds for misfortune, kinds in wrong.items() if kinds} == {
            misfortune: {kind} for misfortune, kind in known[name].items()
        }, name
    assert report.always_right() == [name for name, broken in known.items() if not broken]
    assert report.broken == []


def test_a_misfortune_changes_the_totals_of_the_labours_that_it_hits_only(report: DeltasReport) -> None:
    """Except for one design: losing the events of other labours is what a source watermark does."""
    plans = draw_plans(SEED, LABOURS)
    for name, result in report.results.items():
        for misfortune, outcomes in result.outcomes.items():
            hit = [labour in plans[misfortune].hit for labour in plans[misfortune].labours]
            wrong = [outcome not in RIGHT for outcome in outcomes]
            assert 0 < sum(hit) < LABOURS
            if name != "source watermark":
                assert wrong in (hit, [False] * LABOURS), (name, misfortune)


def test_the_semantics_of_each_design_are_those_that_its_outcomes_show(report: DeltasReport) -> None:
    assert {design.name: report.shown_semantics(design.name) for design in DESIGNS} == {
        design.name: design.semantics for design in DESIGNS
    }


def test_a_design_under_our_name_that_counts_wrong_is_reported(report: DeltasReport) -> None:
    wrong = dict(report.results) | {Ours.name: report.results["time as the key"]}

    assert replace(report, results=wrong).broken == ["same time", "replay"]


def test_page_and_chart_are_those_of_this_run(report: DeltasReport) -> None:
    for path, text in pages(report).items():
        assert path.read_text() == text, f"run `{COMMAND}`: it writes {path.name}"
    for name, counts in report.counts().items():
        assert sum(counts.values()) == LABOURS * len(MISFORTUNES)
        assert f"{name}: {in_words(counts)}" in CHART.read_text()


def test_the_report_for_programs_has_outcomes_costs_and_reasons_of_every_design(report: DeltasReport) -> None:
    printed = json.loads(json.dumps(report.to_json()))

    assert [design["name"] for design in printed["designs"]] == [design.name for design in DESIGNS]
    ours = printed["designs"][-1]
    assert (ours["ours"], ours["semantics"], ours["statements"], ours["rows"]) == (True, "effectively once", 6, 2)
    assert ours["outcomes"]["race"] == {"right": LABOURS, "too_little": 0, "too_much": 0}
    assert all(design["breaks"] and design["remembers"] for design in printed["designs"])


# The test plan of a delta projection


@pytest.fixture
async def pair(notification_url: str) -> AsyncIterator[Pair]:
    async with workers(notification_url, Ours) as pair:
        yield pair


def contraction(labour_id: UUID | None = None) -> Event:
    return Event(uuid7(), labour_id or uuid7(), 1, 1, datetime.now(UTC), uuid7(), 1, 60)


async def totals(worker: Worker) -> dict[UUID, tuple[int, int]]:
    return {labour: (count, seconds) for labour, count, seconds in await worker.connection.fetch(Ours.totals)}


async def traces(worker: Worker, event: Event) -> tuple[int, int]:
    """The number of claims and of postings of the event."""
    claims = await worker.connection.fetchval("SELECT count(*) FROM processed_event WHERE event_id = $1", event.id)
    postings = await worker.connection.fetchval("SELECT count(*) FROM posting WHERE event_id = $1", event.id)
    return claims, postings


async def test_the_same_event_again_leaves_the_totals_as_they_were(pair: Pair) -> None:
    event = contraction()

    verdicts = [await Ours().handle(pair[0], event) for _ in range(2)]

    assert verdicts == [Verdict.ACK] * 2
    assert await totals(pair[0]) == {event.labour_id: (1, 60)}


async def test_of_two_sessions_one_counts_the_event_and_the_other_puts_it_back(pair: Pair) -> None:
    event = contraction()

    verdicts = await race(Ours(), pair, event)

    assert sorted(verdict.value for verdict in verdicts) == ["ack", "nack"]
    assert await totals(pair[0]) == {event.labour_id: (1, 60)}


async def test_a_crash_between_record_and_effect_leaves_neither(pair: Pair) -> None:
    event = contraction()

    await crash(Ours(), pair[0], event)

    assert await traces(pair[1], event) == (0, 0)
    assert await totals(pair[1]) == {}
    await Ours().handle(pair[0], event)
    assert await traces(pair[1], event) == (1, 1)
    assert await totals(pair[1]) == {event.labour_id: (1, 60)}


async def test_a_replay_after_the_claims_are_forgotten_meets_the_ledger(pair: Pair) -> None:
    event = contraction()
    await Ours().handle(pair[0], event)
    await pair[0].connection.execute(Ours.forget)
    assert await traces(pair[0], event) == (0, 1)

    verdict = await Ours().handle(pair[0], event)

    assert verdict is Verdict.ACK
    assert await traces(pair[0], event) == (1, 1)
    assert await totals(pair[0]) == {event.labour_id: (1, 60)}


class WithoutLock(Recomputation):
    """As `Recomputation`, but the row of the labour is locked by the statement that has already read the facts."""

    lock = "SELECT $1::uuid"


@pytest.mark.parametrize(("design", "counted"), [(Recomputation, 2), (WithoutLock, 1)])
async def test_two_events_of_a_labour_at_the_same_time_need_the_lock_of_its_row_first(
    notification_url: str, design: type[Recomputation], counted: int
) -> None:
    labour_id = uuid7()
    async with workers(notification_url, design) as (first, second):
        await first.connection.execute("INSERT INTO total VALUES ($1, 0, 0)", labour_id)
        async with first.connection.transaction():
            await design().handle(first, contraction(labour_id))
            other = asyncio.create_task(design().handle(second, contraction(labour_id)))
            waiting = partial(waits_for_a_lock, second, seen_by=first)
            await eventually(waiting, what="the second worker waits for the first one's commit")
        await other

        assert await totals(first) == {labour_id: (counted, 60 * counted)}

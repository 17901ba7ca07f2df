"""Runs the designs, one after the other, each in tables of its own, and compares its totals with the truth.

Nothing depends on timing: a crash happens at a named step, and two workers that race wait for each other there.
"""

import asyncio
import re
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from uuid import UUID

import asyncpg
from uuid_utils.compat import uuid7

from e2e.experiments.quest.deltas.design import TOTAL, Design, Event, Worker
from e2e.experiments.quest.deltas.misfortunes import Delivery, Plan
from e2e.support.crash import SimulatedCrash
from e2e.support.databases import connect, fresh_database, migrated_server
from e2e.support.waiting import eventually
from fern.errors import FernError
from fern.output import counting
from fern.runtime.postgres import TemporaryServer
from messaging.consumer import Verdict

PATIENCE = 20  # deliveries of an event that is put back again and again; two are enough for every design


class TotalOutcome(StrEnum):
    """A labour's totals, compared with the sum of every event once."""

    RIGHT = "right"
    TOO_LITTLE = "too_little"
    TOO_MUCH = "too_much"

    @classmethod
    def of(cls, found: tuple[int, int], truth: tuple[int, int]) -> "TotalOutcome":
        if found == truth:
            return cls.RIGHT
        return cls.TOO_MUCH if found > truth else cls.TOO_LITTLE


@dataclass(frozen=True, slots=True)
class DesignResult:
    """`outcomes` are of the labours, by misfortune. An event to which nothing happens costs so many `statements`, with BEGIN and
    COMMIT, and so many `rows` besides the totals.
    """

    outcomes: dict[str, list[TotalOutcome]]
    statements: int
    rows: int


def compare(plans: Mapping[str, Plan], designs: Sequence[type[Design]]) -> dict[str, DesignResult]:
    """Run the designs on a temporary PostgreSQL, with a progress bar."""
    with (
        counting("designs", len(designs)) as advance,
        tempfile.TemporaryDirectory(prefix="fern-quest-") as directory,
        migrated_server(Path(directory)) as server,
    ):
        return asyncio.run(run_designs(server, plans, designs, advance))


async def run_designs(
    server: TemporaryServer,
    plans: Mapping[str, Plan],
    designs: Sequence[type[Design]],
    advance: Callable[[int], None] = lambda count: None,
) -> dict[str, DesignResult]:
    """The result of each design, by name. The server must have the services' migrated databases, to be copied."""
    url, results = await fresh_database(server, "notification"), dict[str, DesignResult]()
    for design in designs:
        async with workers(url, design) as pair:
            results[design.name] = await run_design(design(), pair, plans)
        advance(1)
    return results


Pair = tuple[Worker, Worker]


@asynccontextmanager
async def workers(url: str, design: type[Design]) -> AsyncIterator[Pair]:
    """Two workers with two connections each, and the tables of the design in a schema of their own."""
    schema = re.sub(r"\W+", "_", design.name.lower())
    a, b, c, d = connections = [await connect(url) for _ in range(4)]
    try:
        await a.execute(f"CREATE SCHEMA {schema}")
        for connection in connections:
            await connection.execute(f"SET search_path = {schema}, public")
        await a.execute(f"{TOTAL}; {design.tables}")
        yield Worker(a, b), Worker(c, d)
    finally:
        for connection in connections:
            connection.terminate()


async def run_design(design: Design, pair: Pair, plans: Mapping[str, Plan]) -> DesignResult:
    outcomes = dict[str, list[TotalOutcome]]()
    for name, plan in plans.items():
        await _run_plan(design, pair, plan)
        outcomes[name] = await _compare_totals(design, pair[0].connection, plan)
    return DesignResult(outcomes, *await _cost(design, pair[0]))


async def _run_plan(design: Design, pair: Pair, plan: Plan) -> None:
    row = "INSERT INTO total (labour_id, count, seconds) SELECT unnest($1::uuid[]), 0, 0"
    await pair[0].connection.execute(row, [one for one in plan.labours if one not in plan.without_row])
    await _deliver_all(design, pair, plan.deliveries)
    if plan.replayed and design.forget:
        await pair[0].connection.execute(design.forget)
    await _deliver_all(design, pair, plan.replayed)


async def _deliver_all(design: Design, pair: Pair, deliveries: Sequence[Delivery]) -> None:
    """Deliver as a bus does: an event that a worker puts back is delivered again after all others."""
    waiting, attempts = deque(deliveries), Counter[UUID]()
    while waiting:
        delivery = waiting.popleft()
        if Verdict.NACK in await _deliver(design, pair, delivery):
            waiting.append(Delivery(delivery.event))
            attempts[delivery.event.id] += 1
            if attempts[delivery.event.id] > PATIENCE:
                raise FernError(f"{design.name}: an event was put back {PATIENCE} times.")


async def _deliver(design: Design, pair: Pair, delivery: Delivery) -> list[Verdict]:
    if delivery.race:
        return await race(design, pair, delivery.event)
    if delivery.crash:
        await crash(design, pair[0], delivery.event)
    return [await design.handle(pair[0], delivery.event)]


async def crash(design: Design, worker: Worker, event: Event) -> None:
    """Let the worker die between its two writes: its transaction is rolled back."""

    async def die() -> None:
        raise SimulatedCrash

    with suppress(SimulatedCrash):
        await design.handle(replace(worker, between=die), event)


async def race(design: Design, pair: Pair, event: Event) -> list[Verdict]:
    """Let both workers handle the event. Each waits after its check until the other has checked, too, or has ended, or waits for
    a lock of the first.
    """
    arrived, tasks = [False, False], list[asyncio.Task[Verdict]]()

    async def meet(own: int) -> None:
        other = 1 - own
        arrived[own] = True

        async def met() -> bool:
            return arrived[other] or tasks[other].done() or await waits_for_a_lock(pair[other], seen_by=pair[own])

        await eventually(met, what="the other worker has checked the event, has ended, or waits")

    for own, worker in enumerate(pair):
        handled = design.handle(replace(worker, checked=partial(meet, own)), event)
        tasks.append(asyncio.create_task(handled))
    return list(await asyncio.gather(*tasks))


async def waits_for_a_lock(worker: Worker, seen_by: Worker) -> bool:
    blocked = "SELECT cardinality(pg_blocking_pids($1)) > 0"
    return bool(await seen_by.aside.fetchval(blocked, worker.connection.get_server_pid()))


async def _compare_totals(design: Design, connection: asyncpg.Connection, plan: Plan) -> list[TotalOutcome]:
    found = {labour_id: (count, seconds) for labour_id, count, seconds in await connection.fetch(design.totals)}
    truth = plan.truth()
    return [TotalOutcome.of(found.get(one, (0, 0)), truth[one]) for one in plan.labours]


async def _cost(design: Design, worker: Worker) -> tuple[int, int]:
    """The statements and the new rows of the second event of a labour."""
    labour_id, statements, before = uuid7(), list[object](), 0
    connections = (worker.connection, worker.aside)
    for sequence in (1, 2):
        before = await _rows(worker.connection)
        statements.clear()
        for connection in connections:
            connection.add_query_logger(statements.append)
        event = Event(uuid7(), labour_id, sequence, 10**9 + sequence, datetime.now(UTC), uuid7(), 1, 60)
        await design.handle(worker, event)
        await asyncio.sleep(0)  # the driver calls the loggers in the next turn of the loop
        for connection in connections:
            connection.remove_query_logger(statements.append)
    return len(statements), await _rows(worker.connection) - before


async def _rows(connection: asyncpg.Connection) -> int:
    """The number of rows that the design keeps besides the totals."""
    tables = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
    names = {name for (name,) in await connection.fetch(tables)} - {"total"} | {"processed_event"}
    return sum([await connection.fetchval(f"SELECT count(*) FROM {name}") for name in names])

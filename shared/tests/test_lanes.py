"""The relay looks above a bound in each lane. It stays fast behind an old transaction, and overlooks nothing."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.bus import pull_sample_events
from e2e.support.databases import connect
from e2e.support.sample_events import Happened, all_published, emit, outbox_rows
from e2e.support.waiting import eventually
from messaging import lanes, outbox_admin, relay, unit_of_work
from messaging.bus import Outgoing
from messaging.database import create_engine, driver_connection
from messaging.errors import PublishRejected
from messaging.outbox import LANES, lane_of
from messaging.pubsub import PubSub
from messaging.relay import Relay
from messaging.unit_of_work import UnitsOfWork

NO_SWEEP: dict[str, Any] = {"poll_interval": 3600.0, "lanes": LANES}  # but the first look, which has no bounds yet

KEYS = [key for key in (f"labour-{number}" for number in range(1000)) if lane_of(key) == 7]


@pytest.fixture(autouse=True)
def settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "SETTLE_INTERVAL", 0.0)


class Held:
    """A unit of work with one event that has its position and waits before its commit."""

    def __init__(self, units: UnitsOfWork, event: Happened) -> None:
        self._reached, self._released = asyncio.Event(), asyncio.Event()
        self._units, self._event = units, event

    async def start(self) -> "Held":
        unit_of_work.BEFORE_COMMIT.arm(self._wait)
        self._writing = asyncio.create_task(emit(self._units, self._event))
        await self._reached.wait()
        unit_of_work.BEFORE_COMMIT.disarm()
        return self

    async def _wait(self) -> None:
        self._reached.set()
        await self._released.wait()

    async def commit(self) -> None:
        self._released.set()
        await self._writing


async def make_passes(one: Relay, count: int = 4) -> int:
    """Make so many passes that the bounds move as far as they may. Returns the number of published events."""
    return sum([(await one.run_once()).published for _ in range(count)])


@pytest.mark.parametrize("seed", range(3))
async def test_commits_in_any_order_of_positions_are_found_without_a_sweep(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub, seed: int
) -> None:
    one = Relay(labour_engine, bus, **NO_SWEEP)
    await emit(labour_units, Happened(KEYS[0], 0))
    assert await make_passes(one) == 1
    writers = [await Held(labour_units, Happened(KEYS[number], number)).start() for number in range(12)]
    random.Random(seed).shuffle(writers)

    for writer in writers:
        await writer.commit()
        assert await make_passes(one) == 1

    assert await all_published(labour_engine)


async def test_a_bound_passes_what_is_published_once_every_earlier_writer_has_ended(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    one = Relay(labour_engine, bus, **NO_SWEEP)
    writer = await Held(labour_units, Happened(KEYS[0], 1)).start()
    await emit(labour_units, Happened(KEYS[1], 1))

    await make_passes(one)
    while_open = one._lanes.bounds[7]
    await writer.commit()
    await make_passes(one)

    assert (while_open, one._lanes.bounds[7]) == (0, 2)


async def test_a_transaction_that_has_not_written_to_the_outbox_holds_up_no_bound(
    labour_url: str, labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    old = await connect(labour_url)
    await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await old.fetch("SELECT pg_current_xact_id(), count(*) FROM outbox")
    one = Relay(labour_engine, bus, batch_size=200, **NO_SWEEP)
    for number in range(8):
        await emit(labour_units, *(Happened(f"labour-{key}", number) for key in range(200)))
        await make_passes(one, 2)
    await make_passes(one)

    bounded, unbounded = [await buffers(labour_engine, bounds) for bounds in (one._lanes.bounds, [0] * LANES)]
    await old.close()

    assert await all_published(labour_engine)
    assert bounded <= 4 * LANES
    assert unbounded > 1000  # the old transaction keeps the 1,600 entries from being removed


async def buffers(engine: AsyncEngine, bounds: list[int]) -> int:
    async with driver_connection(engine) as connection:
        plan = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {lanes._LOOK}", lanes._ALL, bounds)
    total = next(line for (line,) in plan if "Buffers:" in line)
    return sum(int(part.partition("=")[2]) for part in total.split() if part.startswith(("hit=", "read=")))


async def test_a_parked_row_that_is_released_goes_out_before_the_later_rows_of_its_key(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    sick, well = KEYS[0], KEYS[1]

    class Picky:
        reject = True

        async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
            if self.reject and any(sick.encode() in message.data for message in messages):
                raise PublishRejected("not now")
            return await bus.publish(topic, messages)

    picky = Picky()
    one = Relay(labour_engine, picky, max_attempts=1, **NO_SWEEP)
    await emit(labour_units, Happened(well, 0), Happened(sick, 1))
    for number in range(2, 6):
        await emit(labour_units, Happened(well, number), Happened(sick, number))
        await make_passes(one)
    [parked] = await outbox_rows(labour_engine, parked=True)

    picky.reject = False
    async with labour_engine.begin() as connection:
        await outbox_admin.retry(connection, parked.event_id)
    await make_passes(one)

    numbers = [(event.key, event.number) for event in await pull_sample_events(bus)]
    assert [number for key, number in numbers if key == sick] == [1, 2, 3, 4, 5]
    assert await all_published(labour_engine)


async def test_a_sweep_finds_what_became_pending_again_below_the_bounds(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    one, stop = Relay(labour_engine, bus, poll_interval=0.01), asyncio.Event()
    await emit(labour_units, *(Happened("a", number) for number in range(3)))
    await make_passes(one)
    assert one._lanes.bounds[lane_of("a")] == 3
    async with labour_engine.begin() as connection:
        chosen = outbox_admin.published(since=None, until=None, ordering_key=None, type=None)
        await outbox_admin.replay(connection, chosen, dry_run=False, after=0, limit=100)

    running = asyncio.create_task(one.run(stop))
    await eventually(lambda: all_published(labour_engine), what="the replayed rows are published")
    stop.set()
    await running

    assert [event.number for event in await pull_sample_events(bus)] == [0, 1, 2, 0, 1, 2]


async def test_a_failure_of_the_database_makes_a_relay_forget_its_bounds(
    labour_url: str, labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    engine = create_engine(labour_url, process="cut")
    one, stop = Relay(engine, bus, **NO_SWEEP), asyncio.Event()
    await emit(labour_units, Happened("a", 1))
    await make_passes(one)
    async with labour_engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE outbox SET published_at = NULL")
    assert await make_passes(one) == 0  # it is below the bound, and there was no sweep

    await cut_connections(labour_url, "cut")
    running = asyncio.create_task(one.run(stop))
    await eventually(lambda: all_published(labour_engine), what="published after the failure")
    stop.set()
    await running
    await engine.dispose()


async def cut_connections(url: str, process: str) -> None:
    own = await connect(url)
    cut = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = $1"
    await own.fetch(cut, process)
    await own.close()


@pytest.mark.parametrize("published", [0, 3000])
async def test_both_queries_find_their_rows_through_the_index_of_pending_rows(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub, published: int
) -> None:
    await emit(labour_units, *(Happened(f"labour-{number}", 0) for number in range(4000)))
    async with driver_connection(labour_engine) as connection:
        await connection.execute("ANALYZE outbox")  # so the planner counts on many pending rows …
        await connection.execute("UPDATE outbox SET published_at = now() WHERE position <= $1", published)

        some = list(range(0, LANES, 4))
        look = await plan(connection, lanes._LOOK, lanes._ALL, [0] * LANES)
        read = await plan(connection, relay._READ_BATCH, some, [0] * len(some), 60, 1000)

    for found in (look, read):
        assert "Index Scan using outbox_pending" in found
        assert not any(
            wrong in found for wrong in ("outbox_pkey", "Seq Scan on outbox", "Bitmap")
        )  # … and may be tempted


async def plan(connection: asyncpg.Connection, statement: str, *arguments: object) -> str:
    return "\n".join(line for (line,) in await connection.fetch(f"EXPLAIN {statement}", *arguments))

"""A process whose clock is wrong says so and deletes nothing; the database's clock decides what is old."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from e2e.support.sample_events import Happened, emit
from e2e.support.waiting import eventually
from messaging import claims, clock, clock_offset
from messaging.claims import Claim
from messaging.database import create_engine, driver_connection
from messaging.errors import ClockWrong, SettingsError
from messaging.retention import Month, Retention, first_id
from messaging.unit_of_work import UnitsOfWork
from servicekit.settings import Environment

KEEP = timedelta(days=90)

SetClock = Callable[[timedelta], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Move the clock of this process by an offset."""
    return lambda offset: monkeypatch.setattr(clock, "OFFSET", offset)


def an_id(at: datetime) -> UUID:
    return UUID(int=first_id(at).int | (7 << 76) | (2 << 62))


async def complete(engine: AsyncEngine, event_id: UUID) -> None:
    async with driver_connection(engine) as connection, connection.transaction():
        assert await claims.claim(connection, "tests", [event_id]) == {event_id: Claim.GRANTED}
        await claims.complete(connection, "tests", [event_id])


async def set_claimed_at(engine: AsyncEngine, event_id: UUID, at: datetime) -> None:
    async with engine.begin() as connection:
        statement = text("UPDATE processed_event SET claimed_at = :at WHERE event_id = :event_id")
        await connection.execute(statement, {"at": at, "event_id": event_id})


async def stored_claims(engine: AsyncEngine) -> set[UUID]:
    async with engine.connect() as connection:
        return set((await connection.execute(text("SELECT event_id FROM processed_event"))).scalars())


async def month_partitions(engine: AsyncEngine) -> set[str]:
    async with engine.connect() as connection:
        tables = await connection.execute(text("SELECT relname FROM pg_class WHERE relname ~ '^processed_event_2'"))
        return set(tables.scalars())


@pytest.mark.parametrize("days", [120, -120])
async def test_a_process_with_a_wrong_clock_deletes_nothing_and_says_why_once(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, set_clock: SetClock, days: int
) -> None:
    await emit(labour_units, Happened("a", 1))
    this_month = an_id(datetime.now(UTC))
    await complete(labour_engine, this_month)
    async with labour_engine.begin() as connection:
        await connection.execute(text("UPDATE outbox SET published_at = clock_timestamp()"))
    set_clock(timedelta(days=days))
    retention = Retention(labour_engine, keep=KEEP, replay_horizon=KEEP)

    stop = asyncio.Event()
    with capture_logs() as lines:
        running = asyncio.create_task(retention.run(stop))

        async def reported() -> bool:
            return any(line["event"] == "no retention while the clock is wrong" for line in lines)

        await eventually(reported, what="it says why")
        stop.set()
        await running

    [line] = [line for line in lines if line["event"] != "the clock is wrong"]
    assert line["log_level"] == "error"
    direction = "ahead of" if days > 0 else "behind"
    assert f"s {direction} the database's: set the clock of its machine" in line["error"]
    with pytest.raises(ClockWrong):
        await retention.run_once()
    assert await stored_claims(labour_engine) == {this_month}
    async with labour_engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM outbox"))).scalar_one() == 1


async def test_the_operator_is_told_that_the_clock_is_wrong_and_a_replay_goes_by_the_databases(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, labour_operator: httpx.AsyncClient, set_clock: SetClock
) -> None:
    await emit(labour_units, Happened("a", 1))
    async with labour_engine.begin() as connection:
        await connection.execute(text("UPDATE outbox SET published_at = clock_timestamp()"))
    set_clock(timedelta(days=120))

    refused = await labour_operator.post("/operations/retention")
    replayed = await labour_operator.post("/operations/outbox/replay", json={"type": Happened.type})

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:fernlabour:problem:clock-wrong")
    assert len(replayed.json()["items"]) == 1  # recorded a moment ago, not 120 days ago


@pytest.mark.parametrize("days", [-120, 120, -20_000, 200_000])
async def test_a_claim_is_kept_for_its_time_whatever_the_clock_that_made_the_event_id(
    labour_engine: AsyncEngine, days: int
) -> None:
    """A clock that is 120 days behind makes ids of a month that retention is about to drop."""
    now = datetime.now(UTC)
    retention = Retention(labour_engine, keep=KEEP, replay_horizon=KEEP)
    await retention.run_once(now - timedelta(days=120))  # makes the partition of that month
    event_id = UUID(int=((int(now.timestamp()) + days * 86_400) * 1000 % 2**48) << 80 | (7 << 76) | (2 << 62))
    await complete(labour_engine, event_id)

    await retention.run_once()

    assert await stored_claims(labour_engine) == {event_id}


async def test_a_month_is_dropped_once_the_last_claim_in_it_is_old(labour_engine: AsyncEngine) -> None:
    now = datetime.now(UTC)
    then = now - timedelta(days=130)
    retention = Retention(labour_engine, keep=KEEP, replay_horizon=KEEP)
    await retention.run_once(then)
    event_id = an_id(then)
    await complete(labour_engine, event_id)

    await set_claimed_at(labour_engine, event_id, now - timedelta(days=89))
    await retention.run_once()
    assert Month.of(then).name in await month_partitions(labour_engine)

    await set_claimed_at(labour_engine, event_id, now - timedelta(days=91))
    await retention.run_once()
    assert Month.of(then).name not in await month_partitions(labour_engine)


async def test_new_events_have_ids_and_times_of_the_clock_of_their_process(set_clock: SetClock) -> None:
    set_clock(timedelta(days=120))
    later = datetime.now(UTC) + timedelta(days=119)

    assert clock.now() > later
    assert clock.new_id() > first_id(later)
    assert clock.new_id().version == 7


async def test_every_process_with_a_database_says_once_that_its_clock_is_wrong(
    labour_url: str, set_clock: SetClock
) -> None:
    engine = create_engine(labour_url, process="test", pool_size=3)
    set_clock(timedelta(minutes=-2))

    with capture_logs() as lines:
        async with engine.connect(), engine.connect(), driver_connection(engine):
            pass
    await engine.dispose()

    [line] = lines
    assert (line["event"], line["log_level"]) == ("the clock is wrong", "error")
    assert "behind the database's" in line["error"]


async def test_the_offset_is_measured_against_the_database(labour_engine: AsyncEngine, set_clock: SetClock) -> None:
    assert await clock_offset.problem(labour_engine) is None

    set_clock(timedelta(hours=-1))

    assert timedelta(minutes=-61) < await clock_offset.offset(labour_engine) < timedelta(minutes=-59)


def test_an_injected_offset_is_refused_outside_local_mode() -> None:
    with pytest.raises(SettingsError, match="FERN_CLOCK_OFFSET is for local runs only"):
        Environment({"FERN_CLOCK_OFFSET": "60"}).check()
    with pytest.raises(SettingsError, match="'tomorrow' is not a number"):
        Environment({"FERN_CLOCK_OFFSET": "tomorrow", "FERN_MODE": "local"}).check()
    Environment({"FERN_CLOCK_OFFSET": "60", "FERN_MODE": "local"}).check()

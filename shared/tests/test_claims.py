"""An event is handled by one consumer at a time, and once. A transaction that is rolled back leaves nothing of its claims."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from messaging import claims
from messaging.claims import Claim, lock_key
from messaging.database import driver_connection


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[asyncpg.Connection]:
    """A transaction that is rolled back at the end, unless the test has ended it."""
    async with driver_connection(engine) as connection:
        await connection.execute("BEGIN")
        yield connection
        if connection.is_in_transaction():
            await connection.execute("ROLLBACK")


async def claim_one(connection: asyncpg.Connection, event_id: UUID, consumer: str = "tests") -> Claim:
    return (await claims.claim(connection, consumer, [event_id]))[event_id]


async def count(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM processed_event"))).scalar_one())


async def test_an_event_is_granted_once_held_meanwhile_and_completed_for_ever(labour_engine: AsyncEngine) -> None:
    event_id = uuid7()
    async with transaction(labour_engine) as holder, transaction(labour_engine) as other:
        assert await claim_one(holder, event_id) is Claim.GRANTED
        assert await claim_one(other, event_id) is Claim.HELD_ELSEWHERE

        await claims.complete(holder, "tests", [event_id])
        await holder.execute("COMMIT")

        assert await claim_one(other, event_id) is Claim.ALREADY_COMPLETED


async def test_deliveries_that_find_it_done_are_counted_beside_the_message_that_had_the_effect(
    labour_engine: AsyncEngine,
) -> None:
    event_id = uuid7()
    for message_id in ("first", "second", "third"):
        async with transaction(labour_engine) as connection:
            await claims.claim(connection, "tests", [event_id], {event_id: message_id})
            await claims.complete(connection, "tests", [event_id])
            await connection.execute("COMMIT")

    async with transaction(labour_engine) as connection:
        [row] = await claims.rows(connection, [event_id])
        assert (row.message_id, row.deliveries) == ("first", 3)
        assert await claims.counts(connection) == claims.ClaimCounts(completed=1, discarded=0, repeats=2)


async def test_two_consumers_each_have_their_own_claim(labour_engine: AsyncEngine) -> None:
    event_id = uuid7()
    async with transaction(labour_engine) as one, transaction(labour_engine) as other:
        assert await claim_one(one, event_id, "one") is Claim.GRANTED
        assert await claim_one(other, event_id, "other") is Claim.GRANTED


async def test_a_rollback_leaves_neither_claim_nor_lock(labour_engine: AsyncEngine) -> None:
    event_id = uuid7()
    async with transaction(labour_engine) as failing:
        await claim_one(failing, event_id)
        await failing.execute("ROLLBACK")

    assert await count(labour_engine) == 0
    async with transaction(labour_engine) as next_one:
        assert await claim_one(next_one, event_id) is Claim.GRANTED


async def test_a_holder_whose_connection_is_killed_frees_the_event(labour_url: str, labour_engine: AsyncEngine) -> None:
    event_id = uuid7()
    plain = make_url(labour_url).set(drivername="postgresql").render_as_string(hide_password=False)
    holder = await asyncpg.connect(plain)
    await holder.execute("BEGIN")
    assert await holder.fetchval("SELECT pg_try_advisory_xact_lock($1)", lock_key("tests", event_id))
    async with transaction(labour_engine) as other:
        assert await claim_one(other, event_id) is Claim.HELD_ELSEWHERE
        await other.execute("ROLLBACK; BEGIN")

        await other.execute(
            "SELECT pg_terminate_backend($1, 60000)", holder.get_server_pid()
        )  # returns when it is gone

        assert await claim_one(other, event_id) is Claim.GRANTED


async def test_the_same_event_from_eight_consumers_fifty_times_has_one_effect(labour_engine: AsyncEngine) -> None:
    event_id = uuid7()
    async with labour_engine.begin() as connection:
        await connection.execute(text("CREATE TABLE effect (event_id uuid)"))
    outcomes = []
    start = asyncio.Barrier(8)

    async def consume(deliveries: int) -> None:
        await start.wait()
        for _ in range(deliveries):
            async with transaction(labour_engine) as connection:
                outcome = await claim_one(connection, event_id)
                if outcome is Claim.GRANTED:
                    await connection.execute("INSERT INTO effect VALUES ($1)", event_id)
                    await claims.complete(connection, "tests", [event_id])
                await connection.execute("COMMIT")
                outcomes.append(outcome)

    await asyncio.gather(*(consume(50) for _ in range(8)))

    async with labour_engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM effect"))).scalar_one() == 1
    assert len(outcomes) == 400
    assert outcomes.count(Claim.GRANTED) == 1


async def test_a_claim_without_its_months_partition_goes_to_the_default_one(labour_engine: AsyncEngine) -> None:
    long_ago = UUID(int=(int(datetime(1999, 1, 1, tzinfo=UTC).timestamp() * 1000) << 80) | (7 << 76) | (2 << 62))

    async with transaction(labour_engine) as connection:
        assert await claim_one(connection, long_ago) is Claim.GRANTED
        stored_in = await connection.fetchval("SELECT tableoid::regclass::text FROM processed_event")
        assert stored_in == "processed_event_default"


@pytest.mark.system
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_lock_key_is_the_same_in_every_process(hash_seed: str) -> None:
    event_id = UUID("01a1e283-e2c1-72f9-a4d3-469915e434d8")
    program = (
        f"from uuid import UUID; from messaging.claims import lock_key; print(lock_key('tests', UUID('{event_id}')))"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )

    assert int(printed.stdout) == lock_key("tests", event_id)
    assert lock_key("other", event_id) != lock_key("tests", event_id)

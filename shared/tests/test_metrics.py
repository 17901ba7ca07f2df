"""What relay and consumer do is in their metrics, and the numbers of the backlog never read a whole table."""

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support import metrics
from e2e.support.bus import pull_all
from e2e.support.metrics import value
from e2e.support.sample_events import Happened, emit
from messaging import backlog, telemetry
from messaging import metrics as instruments
from messaging.bus import Message, Outgoing
from messaging.consumer import Consumer, Received
from messaging.database import create_engine, driver_connection, transaction
from messaging.envelope import Envelope
from messaging.errors import BusUnavailable, PublishRejected, TopicUnusable, Undecodable
from messaging.pubsub import PubSub
from messaging.relay import Relay
from messaging.unit_of_work import UnitOfWork, UnitsOfWork


@pytest.fixture(autouse=True)
def recorded() -> None:
    metrics.record()


class Refusing:
    """A bus that answers every publish with the same error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        raise self._error


def relayed(outcome: str) -> float:
    return value("fern_relay_events_total", service="tests", outcome=outcome)


def consumed(outcome: str) -> float:
    return value("fern_consumer_events_total", consumer="tests", outcome=outcome)


async def test_published_events_are_counted_by_batch_and_by_topic(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    topic = {"messaging_destination_name": Happened.type, "messaging_system": "gcp_pubsub"}
    topic["messaging_operation_name"] = "publish"

    def counts() -> list[float]:
        return [
            relayed("published"),
            value("fern_relay_batch_size_count", service="tests"),
            value("fern_relay_batch_size_sum", service="tests"),
            value("messaging_client_sent_messages_total", **topic),
            value("messaging_client_operation_duration_seconds_count", **topic),
        ]

    before = counts()
    await emit(labour_units, Happened("a", 1), Happened("b", 2), Happened("c", 3))
    await Relay(labour_engine, bus).run_once()

    assert [now - then for now, then in zip(counts(), before, strict=True)] == [3, 1, 3, 3, 1]


@pytest.mark.parametrize(
    ("error", "attempts", "outcome"),
    [
        (PublishRejected("too large"), 10, "rejected"),
        (PublishRejected("too large"), 1, "parked"),
        (BusUnavailable("no answer"), 10, "unanswered"),
        (TopicUnusable("no such topic"), 10, "put_off"),
    ],
    ids=lambda one: str(one),
)
async def test_an_event_that_is_not_published_is_counted_by_the_reason(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, error: Exception, attempts: int, outcome: str
) -> None:
    outcomes = ("published", "rejected", "parked", "unanswered", "put_off")
    before = {one: relayed(one) for one in outcomes}
    await emit(labour_units, Happened("a", 1))

    await Relay(labour_engine, Refusing(error), max_attempts=attempts).run_once()

    assert {one: relayed(one) - before[one] for one in outcomes} == {one: float(one == outcome) for one in outcomes}


async def test_deliveries_are_counted_by_what_became_of_them(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    early = set[int]()

    async def react(uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
        if any(event.event.number == 13 for event in events):
            raise RuntimeError("no")
        return [event.id for event in events if event.event.number in early]

    def decode(envelope: Envelope) -> Happened:
        fields = json.loads(envelope.data)
        if fields["number"] == 99:
            raise Undecodable("bad-payload", "unreadable")
        return Happened(**fields)

    consumer = Consumer("tests", units_of_work=labour_units, decode=decode, react=react, publisher=bus, max_attempts=2)
    await emit(labour_units, *(Happened(f"labour-{number}", number) for number in (1, 2, 13, 99)))
    await Relay(labour_engine, bus).run_once()
    one, two, bad, poison = sorted(
        await pull_all(bus, f"tests.{Happened.type}"), key=lambda message: json.loads(message.data)["number"]
    )
    outcomes = ("handled", "repeat", "contended", "early", "failed", "dead")
    reasons = ("reaction-failed", "bad-payload", "deliveries-exhausted")

    def counts() -> dict[str, float]:
        letters = {one: value("fern_dead_letters_total", consumer="tests", reason=one) for one in reasons}
        return {one: consumed(one) for one in outcomes} | letters

    async def handling(*messages: Message) -> dict[str, float]:
        before = counts()
        await consumer.handle(messages)
        return {name: count - before[name] for name, count in counts().items() if count != before[name]}

    early.add(2)
    assert await handling(one, again(one), two) == {"handled": 1, "repeat": 1, "early": 1}
    assert await handling(again(two, attempt=99)) == {"early": 1}
    assert await handling(again(two, attempt=100)) == {"early": 1, "dead": 1, "deliveries-exhausted": 1}
    early.clear()
    assert await handling(one, two) == {"repeat": 1, "handled": 1}
    assert await handling(bad) == {"failed": 1}
    assert await handling(again(bad, attempt=2)) == {"dead": 1, "reaction-failed": 1}
    assert await handling(poison) == {"dead": 1, "bad-payload": 1}
    assert value("messaging_process_duration_seconds_count", consumer="tests") >= 5


def again(message: Message, attempt: int = 1) -> Message:
    return replace(message, ack_id=f"{message.ack_id}-{attempt}", delivery_attempt=attempt)


async def test_the_connections_of_a_pool_are_counted(labour_url: str) -> None:
    engine = create_engine(labour_url, process="tests-pool", pool_size=3)

    def counts() -> list[float]:
        pool = {"db_client_connection_pool_name": "tests-pool"}
        return [value("db_client_connection_count", state=state, **pool) for state in ("used", "idle")]

    async with driver_connection(engine):
        async with driver_connection(engine):
            pass
        assert counts() == [1, 1]
    assert counts() == [0, 2]
    await engine.dispose()


async def test_the_backlog_of_an_outbox_is_read_with_its_age(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    await fill(labour_engine)
    await emit(labour_units, *(Happened(f"labour-{number}", number) for number in range(5)))
    async with driver_connection(labour_engine) as connection:
        await connection.execute("""
            UPDATE outbox SET recorded_at = clock_timestamp() - interval '1 hour'
            WHERE ordering_key IN ('labour-3', 'labour-4')""")
        await connection.execute("""
            UPDATE outbox SET parked_at = clock_timestamp(), attempts = 10 WHERE ordering_key = 'labour-4'""")

    await backlog.read_once(labour_engine, backlog.read_outbox)

    assert value("fern_outbox_waiting", service="tests") == 4
    assert value("fern_outbox_parked", service="tests") == 1
    assert 3600 <= value("fern_outbox_oldest_waiting_seconds", service="tests") < 3700


async def test_parked_rows_hide_no_event_that_waits_behind_them(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    await emit(labour_units, *(Happened("a", number) for number in range(backlog.FIRST + 5)))
    async with driver_connection(labour_engine) as connection:
        await connection.execute("""
            UPDATE outbox SET recorded_at = clock_timestamp() - interval '1 hour', attempts = 10,
                parked_at = CASE WHEN position < (SELECT max(position) FROM outbox) THEN clock_timestamp() END""")

    await backlog.read_once(labour_engine, backlog.read_outbox)

    assert value("fern_outbox_parked", service="tests") == backlog.FIRST + 4
    assert value("fern_outbox_waiting", service="tests") == 1
    assert 3600 <= value("fern_outbox_oldest_waiting_seconds", service="tests") < 3700


async def test_an_empty_outbox_has_the_age_0(labour_engine: AsyncEngine) -> None:
    await backlog.read_once(labour_engine, backlog.read_outbox)

    assert value("fern_outbox_oldest_waiting_seconds", service="tests") == 0


@pytest.mark.parametrize("waiting", [0, 500])
@pytest.mark.parametrize("name", ["OLDEST_WAITING", "WAITING", "PARKED"])
async def test_no_number_of_the_outbox_reads_the_whole_table(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, name: str, waiting: int
) -> None:
    await fill(labour_engine)
    if waiting:
        await emit(labour_units, *(Happened(f"labour-{number}", number) for number in range(waiting)))

    async with driver_connection(labour_engine) as connection, transaction(connection):
        await connection.execute("SET LOCAL enable_seqscan = off")
        plan = await explain(connection, getattr(backlog, name))

    assert "Seq Scan" not in plan
    assert "outbox_parked" in plan if name == "PARKED" else "outbox_pending" in plan


async def explain(connection: asyncpg.Connection, statement: str) -> str:
    return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}"))


async def fill(engine: AsyncEngine, published: int = 5000) -> None:
    """Insert rows that are published already."""
    async with driver_connection(engine) as connection:
        await connection.execute(
            """
            INSERT INTO outbox (event_id, topic, ordering_key, lane, attributes, payload, occurred_at, published_at)
            SELECT gen_random_uuid(), 'test.happened', 'old-' || number, number % 64, '{}', '{}', now(), now()
            FROM generate_series(1, $1::integer) AS number""",
            published,
        )


async def test_the_duration_of_a_batch_names_the_first_sampled_trace_of_its_events(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def react(uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
        return ()

    consumer = Consumer(
        "tests",
        units_of_work=labour_units,
        decode=lambda envelope: Happened(**json.loads(envelope.data)),
        react=react,
        publisher=bus,
    )
    traces = metrics.examples(monkeypatch, "_processing")
    await emit(labour_units, Happened("labour-1", 1))
    with telemetry.request("PUT", f"00-{'a' * 32}-{'1' * 16}-01", {}):
        await emit(labour_units, Happened("labour-2", 2))
    await Relay(labour_engine, bus).run_once()

    await consumer.handle(await pull_all(bus, f"tests.{Happened.type}"))

    assert traces() == ["a" * 32]


def test_the_duration_of_a_request_names_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = metrics.examples(monkeypatch, "_requests")

    for trace, flags in (("a", "01"), ("b", "00")):
        with telemetry.request("PUT", f"00-{trace * 32}-{'1' * 16}-{flags}", {}):
            instruments.request_answered("/", "PUT", 200, 0.1, "client")

    assert traces() == ["a" * 32]

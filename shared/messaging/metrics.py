"""The metrics of every process. Only this module and `counters` import OpenTelemetry's metrics API.

Without an SDK each call does nothing and costs less than a microsecond. `servicekit.metrics_export` starts the SDK. What happens
often is recorded once for a batch, not for each event. Labels have few values: names of services, consumers, topics, routes and
outcomes, never an id or anything about a person. docs/operations.md has the Prometheus names.

There is one set of instruments for each process, hence the module's variables.
"""

import collections
import functools
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Sized
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation
from sqlalchemy import Engine, QueuePool

from messaging import telemetry
from messaging.claims import Claim
from messaging.counters import Counter

C = TypeVar("C", bound=Callable[..., Awaitable[Any]])

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TAP_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
_LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_SIZES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)
_SYSTEM = {"messaging.system": "gcp_pubsub"}
_PROMISED = 60.0  # seconds from the tap to the SMS
_PUBLISHED = ("published", "rejected", "parked", "unanswered", "put_off")
CALLERS = ("client", "provider", "bus")
_ANSWERS = ("answered", "denied", "unavailable", "failed")

_meter = metrics.get_meter("fernlabour")
_histogram, _gauge = _meter.create_histogram, _meter.create_observable_gauge

_relay_events = Counter("fern.relay.events", "Events that the relay tried to publish, by outcome.")
_relay_batch = _histogram(
    "fern.relay.batch_size", description="Rows of one pass.", explicit_bucket_boundaries_advisory=_SIZES
)
_consumer_events = Counter("fern.consumer.events", "Deliveries of events, by outcome.")
_consumer_batch = _histogram(
    "fern.consumer.batch_size", description="Messages of one batch.", explicit_bucket_boundaries_advisory=_SIZES
)
_dead_letters = Counter("fern.dead_letters", "Messages that were dead-lettered, by reason.")
_operations = _histogram(
    "messaging.client.operation.duration", "s", "Calls to the bus.", explicit_bucket_boundaries_advisory=_SECONDS
)
_sent = Counter("messaging.client.sent.messages", "Messages that the bus was asked to take.")
_consumed = Counter("messaging.client.consumed.messages", "Messages that the bus delivered.")
_processing = _histogram(
    "messaging.process.duration", "s", "Handling of one batch.", explicit_bucket_boundaries_advisory=_SECONDS
)
_attempts = Counter("fern.sms.attempts", "Attempts to send an SMS, by outcome.")
_transitions = Counter("fern.sms.transitions", "Messages that changed to a state of the ledger.")
_doubled = Counter("fern.sms.doubled", "Second messages that the provider delivered for one of ours.")
_tap_to_sms = _histogram(
    "fern.tap_to_sms",
    "s",
    "From the event, or the consent that its SMS waited for, until the provider accepted the SMS.",
    explicit_bucket_boundaries_advisory=_TAP_SECONDS,
)
_late = Counter("fern.sms.late", "Messages that the provider accepted later than promised.")
_answers = Counter("fern.http.requests", "HTTP requests without those of probes, by caller and outcome.")
_requests = _histogram(
    "http.server.request.duration", "s", "HTTP requests.", explicit_bucket_boundaries_advisory=_SECONDS
)
_lag = _histogram(
    "fern.event_loop.lag",
    "s",
    "How late the event loop runs a timer.",
    explicit_bucket_boundaries_advisory=_LAG_SECONDS,
)

enabled = False  # whether an SDK reads the instruments
_service = "unknown"
_process, _started, _waiting = "unknown", 0.0, 0.0
_pools = WeakKeyDictionary[Engine, str]()


class Claimed(Protocol):
    """A part of `consumer.Received`."""

    @property
    def id(self) -> UUID: ...
    @property
    def copies(self) -> int: ...


def enable(process: str) -> None:
    """Called once, when the SDK has been started. The counters of alerts begin at 0 here and in the functions that end with
    `starts`, because Prometheus sees no increase in the first value of a series.
    """
    global enabled, _service, _process, _started
    enabled, _service, _process, _started = True, process.partition("-")[0], process, time.time()
    if process.endswith("-api"):
        for caller in CALLERS:
            for outcome in _ANSWERS:
                _answers.add(0, {"caller": caller, "outcome": outcome})


def relay_starts(topics: Iterable[str]) -> None:
    for outcome in _PUBLISHED:
        _relay_events.add(0, {"service": _service, "outcome": outcome})
    for topic in topics:
        _sent.add(0, _SYSTEM | {"messaging.operation.name": "publish", "messaging.destination.name": topic})


def relay_pass(*, rows: int, **outcomes: int) -> None:
    """A committed pass of the relay, or one that the bus did not answer."""
    _relay_batch.record(rows, {"service": _service})
    for outcome, count in outcomes.items():
        if count:
            _relay_events.add(count, {"service": _service, "outcome": outcome})


_OUTCOMES = {
    Claim.ALREADY_COMPLETED: "repeat",
    Claim.HELD_ELSEWHERE: "contended",
    Claim.TOO_EARLY: "early",
}


def consumer_starts(consumer: str) -> None:
    for outcome in (*_OUTCOMES.values(), "failed", "dead"):
        _consumer_events.add(0, {"consumer": consumer, "outcome": outcome})
    _consumed.add(0, _SYSTEM | {"consumer": consumer})


def batch_committed(
    consumer: str, events: Sequence[Claimed], claimed: Mapping[UUID, Claim], early: Collection[UUID], granted: int
) -> None:
    """Counts deliveries: of an event that a batch has twice, the second delivery is a repeat. `granted` is the number of events
    whose claims were granted.
    """
    if not enabled:
        return
    if granted == len(events) and not early:
        # Nearly every batch. To look up each event's claim takes three times as long, because a UUID is slow to hash.
        counts = collections.Counter(handled=len(events), repeat=sum(event.copies for event in events) - len(events))
    else:
        counts = collections.Counter[str]()
        for event in events:
            if claimed[event.id] is Claim.GRANTED and event.id not in early:
                counts["handled"] += 1
                counts["repeat"] += event.copies - 1
            else:
                counts["early" if event.id in early else _OUTCOMES[claimed[event.id]]] += event.copies
    for outcome, count in counts.items():
        events_consumed(consumer, outcome, count)


def events_consumed(consumer: str, outcome: str, count: int) -> None:
    if count:
        _consumer_events.add(count, {"consumer": consumer, "outcome": outcome})


def batch_processed(consumer: str, size: int, started: float, traceparents: Iterable[str | None]) -> None:
    """`started` is a `time.perf_counter()`. The duration is an example of the first sampled trace of the batch."""
    if not enabled:
        return
    labels = {"consumer": consumer}
    example = next((found for one in traceparents if (found := telemetry.context_of(one))), None)
    _processing.record(time.perf_counter() - started, labels, example)
    _consumer_batch.record(size, labels)
    _consumed.add(size, _SYSTEM | labels)


def dead_lettered(consumer: str, reason: str, count: int) -> None:
    _dead_letters.add(count, {"consumer": consumer, "reason": reason})
    events_consumed(consumer, "dead", count)


def timed(operation: str) -> Callable[[C], C]:
    """Measures a method of the bus whose first parameters are a topic or subscription, and messages or their ids."""

    def decorate(call: C) -> C:
        @functools.wraps(call)
        async def measured(bus: Any, destination: str, messages: Sized, *rest: Any) -> Any:
            labels = _SYSTEM | {"messaging.operation.name": operation, "messaging.destination.name": destination}
            started = time.perf_counter()
            try:
                return await call(bus, destination, messages, *rest)
            except Exception as error:
                labels["error.type"] = type(error).__name__
                raise
            finally:
                _operations.record(time.perf_counter() - started, labels)
                if operation == "publish":
                    _sent.add(len(messages), labels)

        return measured  # type: ignore[return-value]

    return decorate


def ledger_starts(states: Iterable[str], outcomes: Iterable[str] = ()) -> None:
    """`states` of messages, and `outcomes` of attempts in a process that makes any."""
    for state in states:
        _transitions.add(0, {"state": str(state)})
    for outcome in outcomes:
        _attempts.add(0, {"outcome": outcome})
    _late.add(0)
    _doubled.add(0)


def sms_attempted(outcomes: Mapping[str, int]) -> None:
    """The number of attempts that a transaction has recorded, by outcome."""
    for outcome, count in outcomes.items():
        _attempts.add(count, {"outcome": outcome})


class Sent(NamedTuple):
    event_id: UUID
    event_type: str
    at: float  # Unix time
    traceparent: str | None = None  # of the trace that a measurement of it is an example of
    released_at: datetime | None = None  # when it could be sent, if it had to wait for consent


def messages_moved(states: Iterable[str], sent: Iterable[Sent] = ()) -> None:
    """Messages of the ledger that have changed to these states, and those of them that the provider has accepted."""
    if not enabled:
        return
    for state, count in collections.Counter(states).items():
        _transitions.add(count, {"state": str(state)})
    for event_id, event_type, at, traceparent, released_at in sent:
        if event_id.version == 7:  # the first 48 bits are the time at which it was made, in milliseconds
            since = (event_id.int >> 80) / 1000 if released_at is None else released_at.timestamp()
            _tap_to_sms.record(max(0.0, at - since), {"event_type": event_type}, telemetry.context_of(traceparent))
            if at - since > _PROMISED:
                _late.add(1)


def sms_doubled() -> None:
    _doubled.add(1)


def request_answered(route: str, method: str, status: int, seconds: float, caller: str | None) -> None:
    """`caller` is one of CALLERS, or None for a probe."""
    labels = {"http.route": route, "http.request.method": method, "http.response.status_code": str(status)}
    _requests.record(seconds, labels)
    if caller:
        outcomes = {401: "denied", 403: "denied", 503: "unavailable"}
        _answers.add(1, {"caller": caller, "outcome": outcomes.get(status, "failed" if status >= 500 else "answered")})


def loop_lagged(seconds: float) -> None:
    _lag.record(seconds)


def process_waits(seconds: float) -> None:
    """How long the process has waited for a dependency; 0 if it does not."""
    global _waiting
    _waiting = seconds


def watch_pool(engine: Engine, name: str) -> None:
    """Report the connections of the engine's pool from now on."""
    _pools[engine] = name


def _observe_pools(_: CallbackOptions) -> Iterable[Observation]:
    for engine, name in list(_pools.items()):
        if isinstance(pool := engine.pool, QueuePool):
            labels = {"db.client.connection.pool.name": name}
            yield Observation(pool.checkedout(), labels | {"state": "used"})
            yield Observation(pool.checkedin(), labels | {"state": "idle"})


_gauge("db.client.connection.count", [_observe_pools], description="Connections of a pool.")


def _observe_process(_: CallbackOptions) -> Iterable[Observation]:
    if enabled:
        yield Observation(_started, {"process": _process})


def _observe_waiting(_: CallbackOptions) -> Iterable[Observation]:
    if enabled:
        yield Observation(_waiting, {"process": _process})


_gauge("fern.process.started", [_observe_process], "s", "When the process began, in seconds since 1970.")
_gauge("fern.process.waiting", [_observe_waiting], "s", "How long it has waited for a dependency; 0 if none.")


def gauge(name: str, unit: str, description: str, read: Callable[[], float | None]) -> None:
    """A gauge of the service, which is not reported while `read` returns None."""

    def observe(_: CallbackOptions) -> Iterable[Observation]:
        if (value := read()) is not None:
            yield Observation(value, {"service": _service})

    _gauge(f"fern.{name}", [observe], unit, description)

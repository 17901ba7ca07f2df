"""Traces: from the HTTP request through outbox, relay, bus, claim, ledger and provider to `told`, in one trace.

Only this module imports OpenTelemetry's tracing API. `servicekit.telemetry` starts the SDK. Without the SDK, spans record nothing
and cost nothing measurable, and the trace of a caller is passed on.

A trace outlives every process because its context is stored: with the event in the outbox, and with the message in the ledger.
What continues a trace reads the context from there. So a redelivery, a retry after a crash and a question about a message in
doubt are in the trace of the request that caused them.

| span                            | kind     | parent                                                                 |
|---------------------------------|----------|------------------------------------------------------------------------|
| `PUT …/complete`                | SERVER   | the caller's, from the header `traceparent`                            |
| `create labour.completed`       | PRODUCER | the request                                                            |
| `publish labour.completed`      | CLIENT   | the `create` span of the event                                         |
| `process notification`          | CONSUMER | the same                                                               |
| `dead-letter labour.completed`  | CLIENT   | the same, instead of or after `process`                                |
| `send sms`, `ask about sms`     | CLIENT   | the `process` span that wrote the message                              |
| `POST /webhooks/twilio/status`  | SERVER   | `send sms`, whose context is in the URL of the callback                |

An event that tells the outcome of a message has no `create` span: it continues the trace with the context of the message.

A step that handles a batch has a span in each trace of its events, and these are linked with each other. With more than `OWN`
events there is one span, in the first of the traces, with links to the next `LINKS`, and with the number of the others as
`fern.traces.left_out`. So what a batch costs does not grow with its size. Traces that are not sampled do not count: for them only
the flag in the stored context is read.

Spans have ids, types, counts and names of errors as attributes. They never have a phone number, a name, a text, or the message
of an exception.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from opentelemetry import context, trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

Attributes = Mapping[str, AttributeValue]

_TRACER = trace.get_tracer("fernlabour")
_PROPAGATOR = TraceContextTextMapPropagator()

ERROR = StatusCode.ERROR
CLIENT, CONSUMER = SpanKind.CLIENT, SpanKind.CONSUMER
LABOUR, EVENT = "fern.labour.id", "cloudevents.event_id"
OWN = 8  # events of a batch whose traces have a span each: enough to read, and larger batches stay cheap
LINKS = 8  # of one span: a link costs a quarter of a span, and the largest batches have a hundred traces
_SPANS = context.create_key("fern-spans")  # the spans of the current step, by trace id
_stored = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})").fullmatch  # a context as `_format` writes it


class Ids(NamedTuple):
    """The current span as log lines name it."""

    trace_id: str
    span_id: str
    sampled: bool


def current_ids() -> Ids | None:
    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return None
    return Ids(f"{found.trace_id:032x}", f"{found.span_id:016x}", found.trace_flags.sampled)


def traceparent() -> str | None:
    """The context of the current span as the W3C writes it, or None outside a trace."""
    return _format(trace.get_current_span().get_span_context())


def continuing(origin: str | None) -> str | None:
    """The context to store with what follows from `origin`: that of the current step in the same trace, else `origin`."""
    spans: Mapping[str, str] = context.get_value(_SPANS) or {}  # type: ignore[assignment]
    return spans.get(origin[3:35], origin) if origin else None


class Spans:
    """The spans of one step. Without any, it is false, and setting an attribute does nothing."""

    def __init__(self, spans: Sequence[Span] = ()) -> None:
        self._spans = spans

    def __bool__(self) -> bool:
        return bool(self._spans)

    def set(self, attributes: Attributes) -> None:
        for span in self._spans:
            span.set_attributes(attributes)


UNTRACED = nullcontext(Spans())  # where nothing is sampled


@contextmanager
def request(name: str, incoming: str | None, attributes: Attributes) -> Iterator[Span]:
    """The span of an HTTP request, in the caller's trace if `incoming` is well formed. The caller of this sets its outcome."""
    around = _PROPAGATOR.extract({"traceparent": incoming}, context.Context()) if incoming else context.Context()
    span = _TRACER.start_span(name, around, SpanKind.SERVER, attributes)
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield span
    except BaseException as error:
        _fail(span, error)
        raise
    finally:
        context.detach(token)
        span.end()


def create(event_type: str, event_id: UUID, key: str, origin: str | None = None) -> str | None:
    """Record that an event was created in the current span, and return the context to store with it: None if the trace is not
    sampled, since no process would read it. `key` is the id of its labour.

    With `origin`, the context stored with the message that the event is about, the event continues that trace and has no span.
    """
    if origin:
        return origin if _is_sampled(origin) else None
    if not trace.get_current_span().get_span_context().trace_flags.sampled:
        return None
    attributes: Attributes = {
        LABOUR: key,
        EVENT: str(event_id),
        "messaging.system": "gcp_pubsub",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": event_type,
    }
    span = _TRACER.start_span(f"create {event_type}", None, SpanKind.PRODUCER, attributes)
    span.end()
    return _format(span.get_span_context())


def batch(
    name: str, kind: SpanKind, origins: Sequence[str | None], attributes: Callable[[], Attributes]
) -> AbstractContextManager[Spans]:
    """The spans of a step that handles the events of `origins` together. The first is the current span in the block.

    `attributes` is called only if there is a span.
    """
    traces = {one[3:35]: one for one in origins if one and _is_sampled(one)}
    parents = [found for one in islice(traces.values(), 1 + LINKS) if (found := _read(one))]
    if not parents:  # a context that is not well formed does not begin a trace
        return UNTRACED
    left_out: Attributes = {"fern.traces.left_out": len(traces) - 1 - LINKS} if len(traces) > 1 + LINKS else {}
    return _step(name, kind, parents, len(origins) <= OWN, {**attributes(), **left_out})


def call(name: str, origin: str | None, attributes: Callable[[], Attributes]) -> AbstractContextManager[Spans]:
    """The span of a call to the provider, in the trace of the message's event. It is the current span in the block."""
    return batch(name, CLIENT, [origin], attributes)


@contextmanager
def _step(
    name: str, kind: SpanKind, parents: Sequence[SpanContext], each: bool, attributes: Attributes
) -> Iterator[Spans]:
    own = parents if each else parents[:1]
    links = [Link(one) for one in parents[len(own) :]]
    first = _TRACER.start_span(name, _within(own[0]), kind, attributes, links)
    linked = [Link(first.get_span_context())]
    spans = [first, *(_TRACER.start_span(name, _within(one), kind, attributes, linked) for one in own[1:])]
    contexts = {one[3:35]: one for span in spans if (one := _format(span.get_span_context()))}
    try:
        with _attached(context.set_value(_SPANS, contexts, trace.set_span_in_context(first))):
            yield Spans(spans)
    except BaseException as error:
        for span in spans:
            _fail(span, error)
        raise
    finally:
        for span in spans:
            span.end()


def continues(traceparent: str) -> bool:
    """True if this is a context that a span can continue."""
    return _read(traceparent) is not None


def outside() -> AbstractContextManager[object]:
    """A block without a current span, for work that one task does for several."""
    return _attached(context.Context())


def messaging_attributes(
    operation: str,
    kind: str,
    topics: Collection[str],
    count: int,
    event_id: object = "",
    labour_id: str = "",
    message_id: str = "",
    group: str = "",
) -> Attributes:
    """Attributes by OpenTelemetry's conventions for messaging. The ids are those of the first message, and are left out if there
    are more; so is the topic if there are several. `group` is the consumer.
    """
    ids = {EVENT: str(event_id), LABOUR: labour_id, "messaging.message.id": message_id} if count == 1 else {}
    topic = next(iter(topics)) if len(topics) == 1 else ""
    more = ids | {"messaging.destination.name": topic, "messaging.consumer.group.name": group}
    return {
        "messaging.system": "gcp_pubsub",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.batch.message_count": count,
        **{name: value for name, value in more.items() if value},
    }


def _is_sampled(origin: str) -> bool:
    """True if the trace of a stored context is sampled. Reads the flag only, which is cheaper than to parse the whole context."""
    return origin[-1] in "13579bdf"


def _read(origin: str) -> SpanContext | None:
    """Parse a stored context, which has one form only. The propagator, which accepts any valid form, takes five times as long."""
    if not (parts := _stored(origin)):
        return None
    trace_id, span_id, flags = parts.groups()
    found = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
    return found if found.is_valid else None


def context_of(origin: str | None) -> context.Context | None:
    """The context for a measurement that belongs to a trace; None if the trace is not sampled."""
    found = _read(origin) if origin and _is_sampled(origin) else None
    return _within(found) if found else None


def _within(parent: SpanContext) -> context.Context:
    return trace.set_span_in_context(NonRecordingSpan(parent), context.Context())


def _format(found: SpanContext) -> str | None:
    if not found.is_valid:
        return None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


@contextmanager
def _attached(wanted: context.Context) -> Iterator[None]:
    token = context.attach(wanted)
    try:
        yield
    finally:
        context.detach(token)


def _fail(span: Span, error: BaseException) -> None:
    """An error is named by its type only: its message may have personal data."""
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(ERROR)

"""Reads OTLP: the spans and the metric points of one export request, without anything that is not listed here.

What a process sends is not trusted to be free of personal data. Attributes that are not in `SHOWN` are dropped when they arrive,
and so are the messages of errors and the events of spans.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

MOST_BYTES = 4_000_000  # of a request, before and after it is decompressed
MOST_CHARACTERS = 200  # of a name or a value
_KINDS = {value: name.removeprefix("SPAN_KIND_").lower() for name, value in trace_pb2.Span.SpanKind.items()}

LABOUR, EVENT = "fern.labour.id", "cloudevents.event_id"

# Ids, types, counts and names of errors. Never add one that can hold a name, a phone number, a text or a URL.
SHOWN = frozenset(
    {
        LABOUR,
        EVENT,
        "cloudevents.event_type",
        "consumer",
        "error.type",
        "event_type",
        "fern.claims.already_completed",
        "fern.claims.early",
        "fern.claims.granted",
        "fern.claims.held_elsewhere",
        "fern.claims.too_early",
        "fern.dead_letter.reason",
        "fern.notification.id",
        "fern.sms.attempt",
        "fern.sms.found",
        "fern.sms.outcome",
        "fern.traces.left_out",
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "messaging.batch.message_count",
        "messaging.consumer.group.name",
        "messaging.destination.name",
        "messaging.destination.subscription.name",
        "messaging.message.id",
        "messaging.operation.name",
        "messaging.operation.type",
        "messaging.system",
        "outcome",
        "service",
        "state",
    }
)

Attributes = dict[str, str | int | float | bool]


class Unreadable(Exception):
    """The body is not what its headers say."""


class TooLarge(Exception):
    """The body is larger than `MOST_BYTES`, as it came or decompressed."""


@dataclass(frozen=True, slots=True)
class Span:
    """Ids are hexadecimal. Times are nanoseconds since 1970. `links` are pairs of a trace id and a span id.
    `instance` tells a process from its replicas and from its predecessor.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    process: str
    instance: str
    kind: str
    start: int
    end: int
    attributes: Attributes
    links: tuple[tuple[str, str], ...]
    failed: bool


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values were up to each bound; the last count has those above all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one series of one process. `instance` tells a process from its replicas and from its predecessor."""

    name: str
    process: str
    instance: str
    attributes: Attributes
    start: int
    time: int
    value: float | Histogram


def decompress(body: bytes, encoding: str) -> bytes:
    """Decompress a body. Raises `TooLarge` before more than `MOST_BYTES` are written, so a small body cannot fill the memory."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise Unreadable(f"the encoding {encoding[:20]!r} is not known: send gzip, or none")
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        found = reader.decompress(body, MOST_BYTES + 1)
    except zlib.error:
        raise Unreadable("the body is not gzip") from None
    if len(found) > MOST_BYTES:
        raise TooLarge
    if not reader.eof:
        raise Unreadable("the body ends too early")
    return found


def read_spans(body: bytes) -> list[Span]:
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        raise Unreadable("the body is not an ExportTraceServiceRequest") from None
    return [
        _span(span, *_resource(found.resource.attributes))
        for found in request.resource_spans
        for scope in found.scope_spans
        for span in scope.spans
        if len(span.trace_id) == 16 and len(span.span_id) == 8 and span.end_time_unix_nano >= span.start_time_unix_nano
    ]


def _span(span: trace_pb2.Span, process: str, instance: str) -> Span:
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name[:MOST_CHARACTERS],
        process,
        instance,
        _KINDS.get(span.kind, "internal"),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _shown(span.attributes),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
    )


def read_points(body: bytes) -> list[Point]:
    """Gauges, cumulative sums and cumulative histograms. Other kinds are left out."""
    try:
        request = ExportMetricsServiceRequest.FromString(body)
    except DecodeError:
        raise Unreadable("the body is not an ExportMetricsServiceRequest") from None
    return [
        Point(metric.name[:MOST_CHARACTERS], *resource, _shown(point.attributes), start, point.time_unix_nano, value)
        for found in request.resource_metrics
        for resource in [_resource(found.resource.attributes)]
        for scope in found.scope_metrics
        for metric in scope.metrics
        for point, start, value in _points(metric)
    ]


def _points(metric: Any) -> Iterator[tuple[Any, int, float | Histogram]]:
    for point in (*metric.gauge.data_points, *metric.sum.data_points):
        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        yield point, point.start_time_unix_nano, float(value)
    for point in metric.histogram.data_points:
        yield point, point.start_time_unix_nano, Histogram(tuple(point.explicit_bounds), tuple(point.bucket_counts))


def _resource(attributes: Iterable[Any]) -> tuple[str, str]:
    """The name of the process and its instance."""
    found = {one.key: str(_value(one)) for one in attributes if one.key in ("service.name", "service.instance.id")}
    return found.get("service.name", "unknown")[:60], found.get("service.instance.id", "")[:MOST_CHARACTERS]


def _shown(attributes: Iterable[Any]) -> Attributes:
    return {one.key: value for one in attributes if one.key in SHOWN and (value := _value(one)) is not None}


def _value(attribute: Any) -> str | int | float | bool | None:
    kind = attribute.value.WhichOneof("value")
    if kind == "string_value":
        return str(attribute.value.string_value)[:MOST_CHARACTERS]
    if kind in ("bool_value", "int_value", "double_value"):
        value: int | float | bool = getattr(attribute.value, kind)
        return value
    return None  # lists, maps and bytes: none of those that are shown has one

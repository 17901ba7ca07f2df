"""Sends spans with OpenTelemetry's own exporter, as the processes of the system do, with times that a test chooses."""

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

BEGAN = 1_800_000_000_000_000_000  # nanoseconds since 1970


def span(
    process: str,
    name: str,
    start_ms: float,
    duration_ms: float,
    *,
    trace: int,
    id: int,
    parent: int | None = None,
    links: Sequence[tuple[int, int]] = (),
    attributes: Mapping[str, Any] | None = None,
    failed: bool = False,
    kind: SpanKind = SpanKind.CLIENT,
) -> ReadableSpan:
    start = BEGAN + int(start_ms * 1e6)
    return ReadableSpan(
        name,
        context=_context(trace, id),
        parent=None if parent is None else _context(trace, parent),
        resource=Resource({"service.namespace": "fernlabour", "service.name": process, "service.instance.id": "one"}),
        attributes=attributes or {},
        links=[Link(_context(*linked)) for linked in links],
        kind=kind,
        status=Status(StatusCode.ERROR, "+12025550123 is not a number") if failed else Status(),
        start_time=start,
        end_time=start + int(duration_ms * 1e6),
    )


def _context(trace: int, id: int) -> SpanContext:
    return SpanContext(trace, id, is_remote=False, trace_flags=TraceFlags(1))


def hexadecimal(trace: int) -> str:
    return f"{trace:032x}"


def export(url: str, spans: Sequence[ReadableSpan], compression: Compression = Compression.Gzip) -> None:
    exporter = OTLPSpanExporter(f"{url}/v1/traces", compression=compression, timeout=5)
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    exporter.shutdown()  # type: ignore[no-untyped-call]


def a_labour_completed(labour_id: str, event_id: str, trace: int) -> list[ReadableSpan]:
    """One request that became a text, with a refused attempt and a callback two seconds later, as the processes report it."""
    both = {"fern.labour.id": labour_id, "cloudevents.event_id": event_id}
    route = "/api/v1/labours/{labour_id}/complete"
    twilio = "POST /webhooks/twilio/status"
    return [
        span("labour-api", f"PUT {route}", 0, 20, trace=trace, id=1, kind=SpanKind.SERVER,
             attributes={"fern.labour.id": labour_id, "http.route": route, "http.response.status_code": 200}),
        span("labour-api", "create labour.completed", 10, 1, trace=trace, id=2, parent=1,
             kind=SpanKind.PRODUCER, attributes=both),
        span("labour-relay", "publish labour.completed", 30, 10, trace=trace, id=3, parent=2, attributes=both),
        span("notification-consumer", "process notification", 50, 20, trace=trace, id=4, parent=2, kind=SpanKind.CONSUMER,
             attributes=both),
        span("notification-dispatcher", "send sms", 80, 10, trace=trace, id=5, parent=4, failed=True,
             attributes={**both, "fern.sms.attempt": 1, "error.type": "ProviderUnavailable"}),
        span("notification-dispatcher", "send sms", 95, 5, trace=trace, id=6, parent=4,
             attributes={**both, "fern.sms.attempt": 2, "phone": "+12025550123"}),
        span("notification-api", twilio, 2100, 10, trace=trace, id=7, parent=6, kind=SpanKind.SERVER),
    ]  # fmt: skip

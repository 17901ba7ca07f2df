"""What the console takes by OTLP, from OpenTelemetry's own exporters over HTTP, and what it keeps of it."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from e2e.support.console_spans import a_labour_completed, export, hexadecimal, span
from e2e.support.http_server import served
from fern.console.board import Board
from fern.console.otlp import MOST_BYTES, Histogram, Point, read_spans
from fern.console.series import MOST_SERIES, SLOT, Metrics
from fern.console.server import create_app
from fern.console.traces import MOST_SPANS, MOST_TRACES
from fern.console.watch import Watch
from fern.settings import PROJECT_ROOT, Settings

PROTOBUF = {"content-type": "application/x-protobuf"}
LABOUR, EVENT = str(uuid4()), str(uuid4())

pytestmark = pytest.mark.system


@pytest.fixture
async def board() -> Board:
    return Board()


@pytest.fixture
async def url(board: Board) -> AsyncIterator[str]:
    settings = Settings(0, PROJECT_ROOT)
    async with served(
        lambda url: create_app(settings, int(url.rpartition(":")[2]), board, Watch(settings, board))
    ) as url:
        yield url


async def ask(url: str, path: str, **query: str) -> Any:
    async with httpx.AsyncClient() as client:
        return (await client.get(url + path, params=query)).json()


async def send(url: str, body: bytes, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        sent = {**PROTOBUF, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await client.post(f"{url}/v1/traces", content=body, headers=sent)


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip], ids=str)
async def test_a_trace_of_the_exporter_is_found_by_its_labour_and_by_its_event(
    url: str, compression: Compression
) -> None:
    await asyncio.to_thread(export, url, a_labour_completed(LABOUR, EVENT, trace=7), compression)

    [found] = await ask(url, "/api/traces", labour_id=LABOUR)
    assert await ask(url, "/api/traces", event_id=EVENT) == [found]
    assert await ask(url, "/api/traces", labour_id=EVENT) == []
    assert (found["id"], found["name"]) == (hexadecimal(7), "PUT /api/v1/labours/{labour_id}/complete")
    assert (found["count"], found["failed"], found["duration_ms"]) == (7, 1, 2110)
    trace = await ask(url, f"/api/traces/{hexadecimal(7)}")
    assert [one["start_ms"] for one in trace["spans"]] == [0, 10, 30, 50, 80, 95, 2100]
    assert [one["process"] for one in trace["spans"]][2:4] == ["labour-relay", "notification-consumer"]


async def test_only_attributes_on_the_list_are_kept_and_no_message_of_an_error(url: str) -> None:
    await asyncio.to_thread(export, url, a_labour_completed(LABOUR, EVENT, trace=7))

    trace = await ask(url, f"/api/traces/{hexadecimal(7)}")

    assert "+12025550123" not in str(trace)
    assert trace["spans"][4]["failed"]
    assert trace["spans"][5]["attributes"] == {
        "fern.labour.id": LABOUR,
        "cloudevents.event_id": EVENT,
        "fern.sms.attempt": 2,
    }


async def test_a_late_span_joins_its_trace_and_one_that_is_sent_again_is_the_same(url: str) -> None:
    *early, late = a_labour_completed(LABOUR, EVENT, trace=7)
    for spans in (early, [span("labour-api", "GET /", 0, 1, trace=8, id=1)], [late], [late]):
        await asyncio.to_thread(export, url, spans)

    assert [one["count"] for one in await ask(url, "/api/traces", labour_id=LABOUR)] == [7]


async def test_a_batch_is_seen_in_every_trace_that_it_joins(url: str) -> None:
    batch = span(
        "notification-consumer", "process notification", 5, 9, trace=1, id=3, parent=1, links=[(2, 1), (99, 1)]
    )
    spans = [span("labour-api", "create", 0, 1, trace=number, id=1) for number in (1, 2)]
    await asyncio.to_thread(export, url, [*spans, batch])

    own, other = [await ask(url, f"/api/traces/{hexadecimal(number)}") for number in (1, 2)]

    assert [(one["name"], one["is_joined"]) for one in own["spans"]] == [
        ("create", False),
        ("process notification", False),
    ]
    assert [(one["name"], one["is_joined"]) for one in other["spans"]] == [
        ("create", False),
        ("process notification", True),
    ]
    assert own["spans"][1]["links"] == [
        {"trace_id": hexadecimal(2), "is_kept": True},
        {"trace_id": hexadecimal(99), "is_kept": False},
    ]
    assert other["spans"][1]["trace_id"] == hexadecimal(1)


async def test_the_newest_traces_are_kept_and_no_trace_grows_without_bound(url: str) -> None:
    first = span("labour-api", "first", 0, 1, trace=1, id=1)
    many = [span("labour-api", "one", 0, 1, trace=number, id=1) for number in range(1, MOST_TRACES + 2)]
    large = [span("labour-api", "one", 0, 1, trace=500, id=number) for number in range(1, MOST_SPANS + 4)]
    await asyncio.to_thread(export, url, [first, many[1], *many[2:], large[0]])
    await asyncio.to_thread(export, url, large)

    shown = [await ask(url, f"/api/traces/{hexadecimal(number)}") for number in (1, 2, 3, 500)]

    assert [one.get("count") for one in shown] == [None, None, 1, MOST_SPANS]
    assert shown[-1]["dropped"] == 3


async def test_what_cannot_be_read_is_refused_as_otlp_says(url: str) -> None:
    body = encode_spans(a_labour_completed(LABOUR, EVENT, trace=7)).SerializeToString()
    bomb = gzip.compress(bytes(MOST_BYTES + 1))
    wanted = [
        (await send(url, body), 200),
        (await send(url, body, content_encoding="gzip"), 400),
        (await send(url, gzip.compress(body)[:-20], content_encoding="gzip"), 400),
        (await send(url, body, content_encoding="br"), 400),
        (await send(url, b"nonsense"), 400),
        (await send(url, bytes(MOST_BYTES + 1)), 413),
        (await send(url, bomb, content_encoding="gzip"), 413),
        (await send(url, b"{}", content_type="application/json"), 415),
    ]

    assert [answer.status_code for answer, _ in wanted] == [status for _, status in wanted]
    assert {answer.headers["content-type"] for answer, _ in wanted} == {"application/x-protobuf"}
    assert wanted[0][0].content == b""
    assert all(Status.FromString(answer.content).message for answer, status in wanted if status != 200)
    assert len(await ask(url, "/api/traces")) == 1


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://elsewhere.example"}, {"sec_fetch_site": "same-origin"}, {"host": "x.example"}],
    ids=str,
)
async def test_no_web_page_can_send_telemetry(url: str, headers: dict[str, str]) -> None:
    body = encode_spans(a_labour_completed(LABOUR, EVENT, trace=7)).SerializeToString()

    assert (await send(url, body, **headers)).status_code == 403
    assert await ask(url, "/api/traces") == []


async def test_metrics_of_the_exporter_become_lines(url: str, board: Board) -> None:
    exporter = OTLPMetricExporter(f"{url}/v1/metrics", timeout=5)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader], Resource({"service.name": "notification-consumer"}))
    meter = provider.get_meter("test")
    events = meter.create_counter("fern.consumer.events")
    events.add(5, {"consumer": "notification", "outcome": "handled"})
    events.add(2, {"consumer": "notification", "outcome": "repeat"})
    meter.create_counter("fern.sms.attempts").add(3, {"outcome": "accepted"})
    meter.create_gauge("fern.outbox.oldest_waiting", "s").set(4.5, {"service": "labour"})
    taps = meter.create_histogram("fern.tap_to_sms", "s", explicit_bucket_boundaries_advisory=[0.1, 1, 60])
    for seconds in (0.05, 0.05, 0.5, 30):
        taps.record(seconds, {"event_type": "labour.completed"})

    await asyncio.to_thread(provider.shutdown)

    lines = {line["name"]: line["now"] for line in board["metrics"]["data"]}
    assert lines == {
        "outbox": 4.5,
        "handled": 5,
        "repeats": 2,
        "sms": 3,
        "p50": pytest.approx(0.1),
        "p99": pytest.approx(57.64),
    }


def point(name: str, value: float | Histogram, instance: str = "one", start: float = 1000, **attributes: str) -> Point:
    return Point(name, "labour-relay", instance, dict(attributes), int(start * 1e9), 0, value)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def values(metrics: Metrics, name: str) -> list[float | None]:
    return next(line["values"] for line in metrics.lines() if line["name"] == name)


def test_a_counter_is_drawn_as_its_increase_and_one_from_before_the_console_begins_at_nought() -> None:
    metrics = Metrics(clock := Clock())
    for handled in (100, 107, 107, 109):
        metrics.add([point("fern.consumer.events", float(handled), start=10, outcome="handled")])
        clock.now += SLOT
    metrics.add([point("fern.consumer.events", 3.0, "its successor", start=clock.now, outcome="handled")])

    assert values(metrics, "handled")[-5:] == [0, 7, 0, 2, 3]
    assert values(metrics, "repeats")[-5:] == [0, 0, 0, 0, 0]


def test_a_value_that_is_not_sent_any_more_is_not_known_and_is_forgotten_after_five_minutes() -> None:
    metrics = Metrics(clock := Clock())
    metrics.add([point("fern.outbox.oldest_waiting", 2.0, service="labour")])
    assert values(metrics, "outbox")[-1] == 2
    clock.now += 4 * SLOT
    assert values(metrics, "outbox")[-5:] == [2, 2, 2, None, None]
    clock.now += 30 * SLOT
    metrics.add([])
    assert set(values(metrics, "outbox")) == {None}


def test_the_number_of_series_is_bounded_and_unknown_metrics_are_not_kept() -> None:
    metrics = Metrics(Clock())
    metrics.add([point("of.another", 1.0)])
    metrics.add(point("fern.sms.attempts", 1.0, str(number), outcome="accepted") for number in range(MOST_SERIES + 50))

    assert next(line["now"] for line in metrics.lines() if line["name"] == "sms") == MOST_SERIES


def test_a_span_of_a_kind_that_a_later_standard_adds_is_kept_as_internal() -> None:
    one = trace_pb2.Span(trace_id=b"t" * 16, span_id=b"s" * 8, name="later", kind=99)  # type: ignore[arg-type]
    request = ExportTraceServiceRequest(
        resource_spans=[trace_pb2.ResourceSpans(scope_spans=[trace_pb2.ScopeSpans(spans=[one])])]
    )

    [span] = read_spans(request.SerializeToString())

    assert (span.name, span.kind) == ("later", "internal")

"""Spans of batches, with the real SDK: how many there are, and what they are linked with."""

from collections.abc import Sequence
from typing import Any, cast
from uuid import uuid4

import pytest
from litestar.types import HTTPScope
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from messaging import telemetry
from messaging.bus import Message, Outgoing
from messaging.dead_letters import Dead, DeadLetters
from servicekit.http.request_trace import traced
from servicekit.telemetry import STOP_SECONDS, export_timeout

CALLBACK = "/callback"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the SDK would send. The provider is not the process's, which can be set only once."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_TRACER", provider.get_tracer("test"))
    return exporter


def contexts(count: int, flags: str = "01") -> list[str]:
    return [f"00-{uuid4().hex}-{uuid4().hex[:16]}-{flags}" for _ in range(count)]


def handled(exporter: InMemorySpanExporter, origins: Sequence[str | None]) -> list[ReadableSpan]:
    """The spans of a batch of events with these stored contexts, in the order they began."""
    with telemetry.batch("handle", telemetry.CONSUMER, origins, dict):
        pass
    return sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


def traces(spans: Sequence[ReadableSpan]) -> list[str]:
    return [f"{found.trace_id:032x}" for span in spans if (found := span.get_span_context())]


def test_a_small_batch_has_a_span_in_each_trace(exporter: InMemorySpanExporter) -> None:
    origins = contexts(telemetry.OWN - 2)

    spans = handled(exporter, [*origins, None, origins[0]])

    assert traces(spans) == [one[3:35] for one in origins]
    assert [len(span.links) for span in spans] == [0] + [1] * (telemetry.OWN - 3)


def test_a_larger_batch_has_one_span_however_few_of_its_traces_are_sampled(exporter: InMemorySpanExporter) -> None:
    [span] = handled(exporter, [*contexts(telemetry.OWN - 1, flags="00"), *contexts(2)])

    assert len(span.links) == 1


def test_the_spans_and_links_of_a_batch_do_not_grow_with_it(exporter: InMemorySpanExporter) -> None:
    origins = contexts(10 * telemetry.LINKS)

    [span] = handled(exporter, origins)

    assert traces([span]) == [origins[0][3:35]]
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [
        one[3:35] for one in origins[1:][: telemetry.LINKS]
    ]
    assert dict(span.attributes or {}) == {"fern.traces.left_out": 9 * telemetry.LINKS - 1}


def test_nothing_is_left_out_of_a_batch_whose_traces_are_all_linked(exporter: InMemorySpanExporter) -> None:
    [span] = handled(exporter, contexts(1 + telemetry.LINKS))

    assert len(span.links) == telemetry.LINKS
    assert "fern.traces.left_out" not in (span.attributes or {})


def test_a_batch_without_a_sampled_trace_has_no_span(exporter: InMemorySpanExporter) -> None:
    assert handled(exporter, [None, "", *contexts(3, flags="00")]) == []


@pytest.mark.parametrize("stored", ["01", "00-xyz-01", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'_1' * 16}-{'1' * 16}-01"])
def test_a_context_that_is_not_one_begins_no_trace_and_is_not_linked(
    exporter: InMemorySpanExporter, stored: str
) -> None:
    assert handled(exporter, [stored]) == []

    [span] = handled(exporter, [*contexts(telemetry.OWN + 1), stored])

    assert len(span.links) == telemetry.OWN


def test_an_outcome_goes_on_with_the_context_of_its_message(exporter: InMemorySpanExporter) -> None:
    [sampled, unsampled] = [*contexts(1), *contexts(1, flags="00")]

    stored = [telemetry.create("notification.sent", uuid4(), "labour", origin) for origin in (sampled, unsampled)]

    assert stored == [sampled, None]
    assert exporter.get_finished_spans() == ()


def test_an_event_of_a_request_has_a_span_only_if_it_is_sampled(exporter: InMemorySpanExporter) -> None:
    [sampled, unsampled] = [*contexts(1), *contexts(1, flags="00")]

    for incoming in (unsampled, sampled):
        with telemetry.request("PUT", incoming, {}):
            stored = telemetry.create("labour.completed", uuid4(), "labour")

    assert stored
    assert [span.name for span in exporter.get_finished_spans()] == ["create labour.completed", "PUT"]
    assert traces(exporter.get_finished_spans()) == [sampled[3:35]] * 2


async def requested(
    method: str = "POST", path: str = CALLBACK, *, query: str = "", header: str = "", callback: str = ""
) -> None:
    """Send a request to an application that answers 204."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def none(*_: Any) -> Any: ...

    headers = [(b"traceparent", header.encode())] if header else []
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": headers}
    await traced(app, callback=callback)(cast("HTTPScope", scope), none, none)


async def test_an_application_that_is_called_back_continues_traces_and_begins_none(
    exporter: InMemorySpanExporter,
) -> None:
    [given, other] = contexts(2)

    for query in ("", "traceparent=", "traceparent=xyz", f"traceparent=00-{'0' * 32}-{'1' * 16}-01"):
        await requested(query=query, callback=CALLBACK)
    await requested(path="/push", query=f"traceparent={given}", callback=CALLBACK)
    assert exporter.get_finished_spans() == ()

    await requested(query=f"nid=1&traceparent={given}", header=other, callback=CALLBACK)
    await requested(path="/push", header=other, callback=CALLBACK)
    assert traces(exporter.get_finished_spans()) == [given[3:35], other[3:35]]


async def test_only_a_callback_has_its_trace_in_the_query(exporter: InMemorySpanExporter) -> None:
    [given] = contexts(1)

    await requested(query=f"traceparent={given}")

    assert traces(exporter.get_finished_spans()) != [given[3:35]]


async def test_a_method_that_a_client_has_made_up_is_in_no_span(exporter: InMemorySpanExporter) -> None:
    for method in ("PUT", "GRACE"):
        await requested(method)

    assert [(span.name, (span.attributes or {})["http.request.method"]) for span in exporter.get_finished_spans()] == [
        ("PUT", "PUT"),
        ("HTTP", "_OTHER"),
    ]


class Accepting:
    """A bus that accepts everything."""

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        return [str(number) for number, _ in enumerate(messages)]


async def test_a_dead_letter_has_a_span_in_the_trace_of_its_event(exporter: InMemorySpanExporter) -> None:
    [sampled, unsampled] = [*contexts(1), *contexts(1, flags="00")]

    def dead(traceparent: str) -> Dead:
        context = {"ce-traceparent": traceparent, "ce-subject": "anything"}
        return Dead(
            Message("tests.labour.begun", traceparent, "message-1", b"", context, 1), "bad-payload", "unreadable"
        )

    letters = DeadLetters("tests", Accepting())
    assert len(await letters.publish([dead(unsampled), dead("+1202555010-01")])) == 2
    assert exporter.get_finished_spans() == ()

    await letters.publish([dead(sampled)])
    [span] = exporter.get_finished_spans()
    assert (span.name, traces([span])) == ("dead-letter labour.begun", [sampled[3:35]])
    assert dict(span.attributes or {}) == {
        "messaging.system": "gcp_pubsub",
        "messaging.operation.name": "dead-letter",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 1,
        "messaging.message.id": "message-1",
        "messaging.destination.name": "labour.begun.dlq",
        "messaging.consumer.group.name": "tests",
        "fern.dead_letter.reason": "bad-payload",
    }


def test_an_export_takes_as_long_as_a_variable_of_the_sdk_says() -> None:
    assert export_timeout("TRACES", {"OTEL_EXPORTER_OTLP_TIMEOUT": ""}) == STOP_SECONDS
    assert export_timeout("TRACES", {"OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "7"}) == STOP_SECONDS
    for name in ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"):
        assert export_timeout("TRACES", {name: "7"}) is None, "the exporter reads it"

"""Receives OTLP over HTTP as an OpenTelemetry collector does, and keeps every span."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """Ids are in hexadecimal; `links` are the ids of the linked traces. `process` is the name of the service that made it."""

    process: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start: int  # nanoseconds since 1970
    end: int
    attributes: dict[str, Any]
    links: tuple[str, ...]
    failed: bool


@dataclass
class Collector:
    url: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)  # what was sent, to search in it

    def receive(self, body: bytes) -> None:
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            process = _attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [_read(process, span) for span in scope.spans]

    def traces_of(self, labour_id: object) -> dict[str, list[ReceivedSpan]]:
        """The traces that have a span about this labour, by their ids; their spans by start time."""
        spans = sorted(self.spans, key=lambda span: span.start)
        wanted = {span.trace_id for span in spans if span.attributes.get("fern.labour.id") == str(labour_id)}
        return {one: [span for span in spans if span.trace_id == one] for one in wanted}


def _read(process: str, span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        process,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        tuple(link.trace_id.hex() for link in span.links),
        span.status.code == 2,
    )


def _attributes(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def running_collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                collector.receive(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        serving.join()

"""The console's routes for telemetry: what processes send by OTLP, and what the page reads of it.

A process needs no permission to send: it has no origin, unlike a page, and content of this type cannot be sent by a form.
"""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.exceptions import HTTPException
from litestar.params import FromPath, FromQuery
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from fern.console.board import Board
from fern.console.otlp import MOST_BYTES, TooLarge, Unreadable, decompress, read_points, read_spans
from fern.console.series import Metrics
from fern.console.traces import Traces
from servicekit.http.problems import Problem

PROTOBUF = "application/x-protobuf"
FOR_PROCESSES = {"for_processes": True}  # read by the guard


class Telemetry:
    def __init__(self, board: Board) -> None:
        self.traces, self.metrics = Traces(), Metrics()
        self._board = board

    def take_spans(self, body: bytes) -> bytes:
        self.traces.add(read_spans(body))
        self._board.put("traces", {"ok": True, "data": self.traces.received})
        return ExportTraceServiceResponse().SerializeToString()

    def take_points(self, body: bytes) -> bytes:
        self.metrics.add(read_points(body))
        self.show_metrics()
        return ExportMetricsServiceResponse().SerializeToString()

    def show_metrics(self) -> None:
        self._board.put("metrics", {"ok": True, "data": self.metrics.lines()})


@post("/v1/traces", status_code=200, opt=FOR_PROCESSES, request_max_body_size=MOST_BYTES)
async def take_traces(request: Request[Any, Any, Any], telemetry: NamedDependency[Telemetry]) -> Response[bytes]:
    return await _take(request, telemetry.take_spans)


@post("/v1/metrics", status_code=200, opt=FOR_PROCESSES, request_max_body_size=MOST_BYTES)
async def take_metrics(request: Request[Any, Any, Any], telemetry: NamedDependency[Telemetry]) -> Response[bytes]:
    return await _take(request, telemetry.take_points)


async def _take(request: Request[Any, Any, Any], take: Callable[[bytes], bytes]) -> Response[bytes]:
    """Take an export request. What cannot be read is refused, as OTLP says, with a status after which an exporter does not
    repeat it, and a `Status` in the body.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != PROTOBUF:
        return _refused(415, f"Send {PROTOBUF}.")
    try:
        body = await _body(request.body)
        return Response(take(decompress(body, request.headers.get("content-encoding", ""))), media_type=PROTOBUF)
    except TooLarge:
        return _refused(
            413, f"A request may have {MOST_BYTES:,} bytes, also when it is decompressed. Send smaller batches."
        )
    except Unreadable as error:
        return _refused(400, f"The request cannot be read: {error}.")


async def _body(read: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        return await read()
    except HTTPException as error:
        raise TooLarge if error.status_code == 413 else Unreadable("the body did not arrive") from None


def _refused(status: int, words: str) -> Response[bytes]:
    return Response(Status(message=words).SerializeToString(), status_code=status, media_type=PROTOBUF)


@get("/api/traces")
async def list_traces(
    telemetry: NamedDependency[Telemetry],
    labour_id: FromQuery[UUID | None] = None,
    event_id: FromQuery[UUID | None] = None,
) -> list[dict[str, Any]]:
    return telemetry.traces.of(*(str(one) if one else None for one in (labour_id, event_id)))


@get("/api/traces/{trace_id:str}")
async def show_trace(telemetry: NamedDependency[Telemetry], trace_id: FromPath[str]) -> dict[str, Any]:
    found = telemetry.traces.show(trace_id)
    if found is None:
        raise Problem(404, "no-such-trace", "The console does not have this trace, or no longer.")
    return found


ROUTES = [take_traces, take_metrics, list_traces, show_trace]

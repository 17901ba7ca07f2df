"""The HTTP connections of a process: limits on the time that a client takes, and on the number of connections.

uvicorn waits for ever for the rest of a request, and its own limit on connections refuses health checks too, in plain text.
`HttpConnection` changes six things:

- The head of a request must arrive within `header_seconds` of its first byte, and the body within `body_seconds` of the head. If
  it does not, the answer is 408 and the connection is closed. A connection on which nothing is sent is closed as late as that.
- The target and the headers of a request have at most `MAX_HEAD` bytes, and so has any other part that the parser keeps until it
  is complete. If there are more, the answer is 431 and the connection is closed, before the memory and the time are spent.
- The application gets a request when it has arrived completely, so a slow client takes no slot (`servicekit.http.admission`).
- While there are too many connections, requests are refused as `busy` and their connections closed; not those for health.
- What is no HTTP is answered by a problem, as everything else.
- A stop closes connections with half a request at once.

The deadlines are attributes that `close_late_connections` looks at ten times a second: a request needs no timer.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from servicekit.http.admission import Admission
from servicekit.http.http_limits import MAX_BODY, MAX_HEAD, HttpLimits
from servicekit.http.problems import Problem, encode

NEVER = float("inf")

_NOT_HTTP = Problem(
    400, "invalid-request", "This is not a valid HTTP request. Check its syntax; headers take no control characters."
)
_TOO_LATE = Problem(
    408, "request-timeout", "The request did not arrive completely in time. Nothing was changed. Send it again."
)
_HEAD_TOO_LARGE = Problem(
    431,
    "headers-too-large",
    f"The target and the headers of a request may have {MAX_HEAD} bytes. Send fewer or shorter ones.",
)


class HeadTooLarge(Exception):
    """Ends the parsing of a request. The client gets `_HEAD_TOO_LARGE`."""


class HttpConnection(HttpToolsProtocol):
    """`deadline` is when the client must have sent what it is sending, by the clock of the event loop."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        state = self.config.app.state  # type: ignore[union-attr]  # the application that `servicekit.http.web` made
        self._limits: HttpLimits = state.limits
        self._admission: Admission | None = state.get("admission")
        self._arriving: tuple[RequestResponseCycle, Any] | None = None  # a request whose body is not complete
        self._head = 0  # bytes of the target, the headers and the trailers of the current request
        self._incomplete = 0  # bytes since the head, a part of the body or the end of a request was complete
        self.deadline = NEVER

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.deadline = self.loop.time() + self._limits.header_seconds

    def data_received(self, data: bytes) -> None:
        if self.deadline == NEVER:  # an empty line before a request stops the keep-alive timer, and begins no request
            self.deadline = self.loop.time() + self._limits.header_seconds
        self._incomplete += len(data)
        super().data_received(data)
        if self._incomplete > MAX_HEAD and not self.transport.is_closing():
            self._answer(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()
        self.deadline = self.loop.time() + self._limits.header_seconds

    def on_url(self, url: bytes) -> None:
        self._count_head(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(name, value)
        super().on_header(name, value)

    def _count_head(self, *parts: bytes) -> None:
        self._head += sum(map(len, parts)) + 4  # a colon, a blank and the end of the line
        if self._head > MAX_HEAD:
            raise HeadTooLarge

    def on_headers_complete(self) -> None:
        self._incomplete = 0
        self.deadline = self.loop.time() + self._limits.body_seconds
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if not cycle.more_body:
            self._hand_over(cycle, app)
            return
        self._arriving = cycle, app
        if cycle.waiting_for_100_continue:
            cycle.waiting_for_100_continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._incomplete = 0
        if self._arriving is None:
            super().on_body(body)
            return
        self.cycle.body += body
        if len(self.cycle.body) > MAX_BODY:
            self._hand_over_arriving()  # the application refuses it without waiting for the rest

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._incomplete = 0
        self.deadline = NEVER
        self._hand_over_arriving()

    def _hand_over_arriving(self) -> None:
        if self._arriving is not None:
            (cycle, app), self._arriving = self._arriving, None
            self._hand_over(cycle, app)

    def _hand_over(self, cycle: RequestResponseCycle, app: Any) -> None:
        crowded = len(self.connections) > self._limits.connections
        if crowded and self._admission is not None and self._admission.is_limited(cycle.scope["path"]):
            cycle.keep_alive, app = False, self._admission.refuse
        super()._start_asgi_task(cycle, app)

    def time_out(self) -> None:
        """Refuse the request and close the connection, because its deadline is over."""
        self.deadline = NEVER
        if self.transport.is_closing():
            return
        if self.pipeline:  # nothing is read before the responses to earlier requests are complete
            self.deadline = self.loop.time() + self._limits.body_seconds
        elif self._is_between_responses() and self.scope is not None:
            self._answer(_TOO_LATE)
        else:
            self.transport.close()

    def _is_between_responses(self) -> bool:
        """Whether the response to the incomplete request may be sent now: none has begun, for it or for an earlier one."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or self._arriving is not None:
            return True
        return cycle.response_complete and self.scope is not cycle.scope

    def send_400_response(self, msg: str) -> None:
        self._answer(_HEAD_TOO_LARGE if self._head > MAX_HEAD else _NOT_HTTP)

    def _answer(self, problem: Problem) -> None:
        headers, body = encode(problem)
        lines = [name + b": " + value + b"\r\n" for name, value in (*self.server_state.default_headers, *headers)]
        head = STATUS_LINE[problem.status_code] + b"".join(lines)
        self.transport.write(head + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def shutdown(self) -> None:
        if self._arriving is not None:
            self.transport.close()
        else:
            super().shutdown()


def close_late_connections(state: ServerState) -> None:
    now = asyncio.get_running_loop().time()
    connections: set[Any] = state.connections  # of our class
    for late in [one for one in connections if one.deadline < now]:
        late.time_out()

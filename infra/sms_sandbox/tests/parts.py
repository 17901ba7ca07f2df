"""Shared by the tests: the real Twilio client, a server that takes webhooks, the sandbox as a process, and polling."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar, overload
from urllib.parse import parse_qsl

from twilio.base.exceptions import TwilioRestException  # type: ignore[import-untyped,unused-ignore]
from twilio.http.async_http_client import AsyncTwilioHttpClient  # type: ignore[import-untyped,unused-ignore]
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped,unused-ignore]
from twilio.rest import Client  # type: ignore[import-untyped,unused-ignore]

__all__ = ["Client", "RequestValidator", "TwilioRestException"]

ACCOUNT = "AC" + "a1" * 16
TOKEN = "a-token"
SENDER = "+15005550006"
PHONE = "+447700900123"
MESSAGES = f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json"

T = TypeVar("T")


@asynccontextmanager
async def twilio_client(url: str, token: str = TOKEN) -> AsyncIterator[Client]:
    """The unmodified async client, pointed at the sandbox."""
    http = AsyncTwilioHttpClient()
    client = Client(ACCOUNT, token, http_client=http)
    client.api.base_url = url
    try:
        yield client
    finally:
        await http.close()


@overload
async def eventually(look: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T: ...
@overload
async def eventually(look: Callable[[], T], holds: Callable[[T], bool]) -> T: ...
async def eventually(look: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Returns what `look` returns once it holds; fails with the last value seen after 60 s."""
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        found = look()
        seen = await found if isinstance(found, Awaitable) else found
        if holds(seen):
            return seen
        assert asyncio.get_running_loop().time() < deadline, f"still {seen!r}"
        await asyncio.sleep(0.01)


@dataclass
class Webhook:
    url: str
    form: dict[str, str]
    signature: str
    token: str

    def is_signed_with(self, auth_token: str) -> bool:
        return bool(RequestValidator(auth_token).validate(self.url, self.form, self.signature))


@dataclass
class WebhookReceiver:
    """Takes webhooks, answering with `answers` one after the other, then with 204."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    taken: list[Webhook] = field(default_factory=list)

    def statuses(self) -> list[str]:
        return [webhook.form["MessageStatus"] for webhook in self.taken]


@contextmanager
def receiving() -> Iterator[WebhookReceiver]:
    receiver = WebhookReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            url = f"http://{self.headers['Host']}{self.path}"
            signature, token = self.headers["X-Twilio-Signature"], self.headers["I-Twilio-Idempotency-Token"]
            receiver.taken.append(Webhook(url, dict(parse_qsl(body, keep_blank_values=True)), signature, token))
            self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""Twilio's Messages resource over HTTP: create, fetch and list, for the unmodified client. A fault may cut the connection."""

import asyncio
import base64
import binascii
import hmac
import re
import time
from asyncio import AbstractEventLoop, Transport
from contextlib import suppress
from datetime import date
from typing import Any
from urllib.parse import urlencode

from litestar import Controller, Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from sms_sandbox.errors import TwilioError, answer_error
from sms_sandbox.sandbox import Sandbox
from sms_sandbox.store import Filters
from sms_sandbox.validation import take

ACCOUNT_SID = re.compile(r"AC[0-9a-f]{32}")
DEFAULT_PAGE, MAX_PAGE = 50, 1000

AnyRequest = Request[Any, Any, Any]


class Messages(Controller):
    path = "/2010-04-01/Accounts/{account_sid:str}"
    exception_handlers = {TwilioError: answer_error}  # noqa: RUF012  (Litestar's way)

    @post("/Messages.json")
    async def create_message(
        self, request: AnyRequest, account_sid: FromPath[str], sandbox: NamedDependency[Sandbox]
    ) -> Response[Any]:
        token = authenticate(request, account_sid, sandbox.settings.auth_token)
        sandbox.store.remember_token(account_sid, token)
        form = {key: str(value) for key, value in (await request.form()).items()}
        reply = take(sandbox, account_sid, form)
        if reply.after_seconds:
            with suppress(TimeoutError):
                await asyncio.wait_for(client_gone(request), reply.after_seconds)
        if reply.answer is None:
            return await hang_up(request)
        if isinstance(reply.answer, TwilioError):
            raise reply.answer
        return Response(reply.answer.as_twilio(), status_code=201)

    @get("/Messages/{name:str}")
    async def fetch_message(
        self, request: AnyRequest, account_sid: FromPath[str], name: FromPath[str], sandbox: NamedDependency[Sandbox]
    ) -> dict[str, object]:
        authenticate(request, account_sid, sandbox.settings.auth_token)
        message = sandbox.store.find(account_sid, name.removesuffix(".json"))
        if message is None or not name.endswith(".json"):
            raise TwilioError(20404, path=request.url.path)
        return message.as_twilio()

    @get("/Messages.json")
    async def list_messages(
        self, request: AnyRequest, account_sid: FromPath[str], sandbox: NamedDependency[Sandbox]
    ) -> dict[str, object]:
        authenticate(request, account_sid, sandbox.settings.auth_token)
        query = {key: str(value) for key, value in request.query_params.items()}
        page, size = _whole(query, "Page", 0), min(_whole(query, "PageSize", DEFAULT_PAGE) or 1, MAX_PAGE)
        filters = Filters(
            recipient=query.get("To"),
            sender=query.get("From"),
            sent_on=_day(query, "DateSent"),
            sent_until=_day(query, "DateSent<"),  # `DateSent<=2026-03-01`: the equals sign is part of the comparison
            sent_since=_day(query, "DateSent>"),
        )
        after = None
        if token := query.get("PageToken"):
            after = sandbox.store.find(account_sid, token.removeprefix("PA"))
            if after is None:
                raise TwilioError(20404, path=request.url.path)
        found = sandbox.store.listed(account_sid, filters, now=time.time(), after=after, limit=size + 1)
        messages = found[:size]

        def uri(number: int, **more: str) -> str:
            """A page of the same list; it repeats the filters because the client follows it as it is."""
            kept = {key: value for key, value in query.items() if key not in ("Page", "PageToken", "PageSize")}
            return f"{request.url.path}?{urlencode({**kept, 'PageSize': size, 'Page': number, **more})}"

        return {
            "messages": [message.as_twilio() for message in messages],
            "page": page,
            "page_size": size,
            "start": page * size,
            "end": page * size + max(len(messages) - 1, 0),
            "uri": uri(page, **({"PageToken": token} if token else {})),
            "first_page_uri": uri(0),
            "previous_page_uri": None,
            "next_page_uri": uri(page + 1, PageToken=f"PA{messages[-1].sid}") if len(found) > size else None,
        }


def authenticate(request: AnyRequest, account_sid: str, wanted: str | None) -> str:
    """The caller's token. Raises 20003 unless the credentials are those of the account in the path."""
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    try:
        user, _, token = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise TwilioError(20003) from None
    known = scheme.lower() == "basic" and ACCOUNT_SID.fullmatch(user) is not None and user == account_sid
    if not known or not token or (wanted is not None and not hmac.compare_digest(token.encode(), wanted.encode())):
        raise TwilioError(20003)
    return token


def _whole(query: dict[str, str], key: str, default: int) -> int:
    value = query.get(key, str(default))
    if not (value.isascii() and value.isdigit()) or len(value) > 9:
        raise TwilioError(20001, parameter=key)
    return int(value)


def _day(query: dict[str, str], key: str) -> str | None:
    """The day of a date filter. A time is ignored, because Twilio promises the day only."""
    if key not in query:
        return None
    try:
        return date.fromisoformat(query[key][:10]).isoformat()
    except ValueError:
        raise TwilioError(20001, parameter=key) from None


class CuttableConnection(H11Protocol):
    """Lets a request cut its own connection, by `hang_up` in the ASGI state.

    ASGI has no way to close a connection without an answer.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, dict(app_state), _loop)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state["hang_up"] = transport.abort


async def client_gone(request: AnyRequest) -> None:
    """Returns when the connection is closed, by either side. Call it only after the body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def hang_up(request: AnyRequest) -> Response[None]:
    """Cut the connection and wait until the server has noticed, so that the response, which must be returned, is not sent."""
    request.scope["state"]["hang_up"]()
    await client_gone(request)
    return Response(None)

"""Refuses requests with a text that breaks the rule of `servicekit.text`, and names the parameter, header or field. Refuses an
impossible Host header, too.
"""

import json
import re
from typing import Any
from urllib.parse import parse_qsl

from litestar import Request
from litestar.enums import ScopeType
from litestar.exceptions import SerializationException
from litestar.types import ASGIApp, Receive, Scope, Send

from servicekit.http.problems import Problem, send_problem
from servicekit.text import FORBIDDEN, forbidden_field, is_line

STORED_HEADERS = frozenset({b"idempotency-key"})

_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(?::([0-9]{0,5}))?")
LAST_PORT = 65535
NO_HOST = "The Host header is not a host name or address, with or without a port."


def refuse_text(field: str) -> Problem:
    """Never repeats the text."""
    return Problem(
        400, "invalid-request", f"{field}: {FORBIDDEN}.", fields=[{"field": field, "problem": f"{FORBIDDEN}."}]
    )


def check_head(app: ASGIApp) -> ASGIApp:
    """Check the path, the query, the Host and the headers that are stored, of every route."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
        elif not all(_is_host(value) for name, value in scope["headers"] if name == b"host"):
            await send_problem(send, Problem(400, "invalid-request", NO_HOST))
        elif field := _forbidden_in_head(scope):
            await send_problem(send, refuse_text(field))
        else:
            await app(scope, receive, send)

    return checked


def _is_host(value: bytes) -> bool:
    """Litestar reads the port of the Host header wherever it needs the path of the URL, and fails on an impossible one."""
    match = _HOST.fullmatch(value)
    return match is not None and int(match[1] or 0) <= LAST_PORT


def _forbidden_in_head(scope: Scope) -> str | None:
    if not is_line(scope["path"]):
        return "path"
    query = scope["query_string"].decode("latin-1")
    for name, value in parse_qsl(query, keep_blank_values=True) if query else ():
        if not is_line(name):
            return "query"
        if not is_line(value):
            return name
    for header, stored in scope["headers"]:
        if header in STORED_HEADERS and not is_line(stored.decode("latin-1")):
            return header.decode("latin-1").title()
    return None


class CheckedRequest(Request[Any, Any, Any]):
    """Checks the whole JSON body before it is converted to the type of the route."""

    async def json(self) -> Any:
        try:
            data = await super().json()
        except (SerializationException, UnicodeDecodeError, RecursionError):
            raise _unreadable(await self.body()) from None
        if field := forbidden_field(data):
            raise refuse_text(field)
        return data


def _unreadable(body: bytes) -> Problem:
    """msgspec refuses half of a surrogate pair without naming the field. The standard library decodes it."""
    try:
        field = forbidden_field(json.loads(body, strict=False))
    except (ValueError, RecursionError):
        field = None
    if field:
        return refuse_text(field)
    return Problem(400, "invalid-request", "The body is not valid JSON in UTF-8. Check its syntax and encoding.")

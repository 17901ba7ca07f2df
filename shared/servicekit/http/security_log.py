"""The security log: one line, `security event`, for each refusal and for each change that an operator requests.

`SecurityLog` is the outermost layer of an application and judges the answer itself, so no refusal is forgotten, whichever part
of the code gives it. The fields of a line:

kind       authentication-failed (401), access-refused (403, or an answer that hides the refusal: `mark_refused`), rate-limited
           (429), operator-change, or a kind that the service has named for some of its paths
method, route, status   `route` is the template of the path, without ids, or `unknown`
reason, detail          the name of the problem and its sentence, as the client gets them; no sentence of a 404, which has an id
caller     of a refused request with a valid token: a keyed hash of the token's subject, the same for the same caller
operator   the name that the token has in the settings
ids        of an operator's change: the ids in the path

A line never has a token, a header, a query, a body, a path as it was sent, or the address of the client, which is personal data
and behind a proxy the proxy's. The trace id, which every line about a routed request has, leads to the proxy's own log.

Of one kind at most `LINES_PER_SECOND` refusals are logged in a second, and the number of the others in one more line. Changes
by operators are all logged: only a holder of a token can cause them. All lines have the level WARNING, so `LOG_LEVEL` keeps them.
"""

import asyncio
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import msgspec
from litestar import Litestar
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from structlog import get_logger

log = get_logger()

LINES_PER_SECOND = 10
KINDS = {401: "authentication-failed", 403: "access-refused", 429: "rate-limited"}
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

_PARAMETER = re.compile(r"\\{(\w+)\\}")


def identify(scope: Scope, subject: str) -> None:
    """Store the caller of this request, for the lines about it."""
    scope["state"]["caller"] = subject


def mark_refused(scope: Scope) -> None:
    """Have the answer logged as `access-refused`, although its status does not say so: to a stranger a labour does not exist."""
    scope["state"]["refused"] = True


class Lines:
    """Counts the lines of each kind. `summarise` gets the kind and the number of those that were left out, after each second."""

    def __init__(self, summarise: Callable[[str, int], None]) -> None:
        self._summarise, self._counts = summarise, dict[str, int]()

    def may_log(self, kind: str) -> bool:
        if kind not in self._counts:
            asyncio.get_running_loop().call_later(1.0, self._end_second, kind)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._counts[kind] <= LINES_PER_SECOND

    def _end_second(self, kind: str) -> None:
        if (left_out := self._counts.pop(kind) - LINES_PER_SECOND) > 0:
            self._summarise(kind, left_out)


class SecurityLog:
    """The layer around `inner`, which are the other layers of `app`.

    `key` is the key of the hash of callers. Without one it is random, so the same caller has another hash in each process.
    `kinds` names the refusals of some paths, by their beginning.
    """

    def __init__(self, app: Litestar, inner: ASGIApp, *, key: str = "", kinds: Mapping[str, str] | None = None) -> None:
        self._inner, self._routes, self._kinds = inner, _Routes(app), kinds or {}
        self._key = key.encode() or secrets.token_bytes(32)
        self._lines = Lines(_log_left_out)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._inner(scope, receive, send)
            return
        status: int | None = None
        refused = False

        async def send_and_log(message: Message) -> None:
            nonlocal status, refused
            if message["type"] == "http.response.start":
                status = message["status"]
                refused = status in KINDS or "refused" in scope["state"]
            elif refused and message["type"] == "http.response.body":
                refused = False
                self._log_refusal(scope, KINDS.get(status or 0, KINDS[403]), message.get("body", b""), status=status)
            await send(message)

        try:
            await self._inner(scope, receive, send_and_log)
        finally:
            # Also without an answer: the change may have been committed before the request was cancelled.
            if "operator" in scope["state"] and scope["method"] not in SAFE and status not in KINDS:
                self._log_change(scope, status=status)

    def _log_refusal(self, scope: HTTPScope, kind: str, body: bytes, **facts: Any) -> None:
        kind = next((named for start, named in self._kinds.items() if scope["path"].startswith(start)), kind)
        if not self._lines.may_log(kind):
            return
        state = scope["state"]
        if "operator" in state:
            facts["operator"] = state["operator"]
        if "caller" in state:
            facts["caller"] = hmac.digest(self._key, state["caller"].encode(), "sha256").hex()[:16]
        facts |= _reason(body)
        if facts["status"] == 404:
            facts.pop("detail", None)  # it repeats the id
        route, _ = self._routes.find(scope["path"])
        log.warning("security event", kind=kind, method=scope["method"], route=route, **facts)

    def _log_change(self, scope: HTTPScope, **facts: Any) -> None:
        route, ids = self._routes.find(scope["path"])
        facts |= {"operator": scope["state"]["operator"], "ids": ids}
        log.warning("security event", kind="operator-change", method=scope["method"], route=route, **facts)


class _Routes:
    """The templates of an application's routes, by which a path is named."""

    def __init__(self, app: Litestar) -> None:
        # Sorted, a literal part comes before a parameter: `{` is a late character.
        templates = sorted({route.path_format for route in app.routes})
        self._patterns = {template: _pattern(template) for template in templates}

    def find(self, path: str) -> tuple[str, dict[str, str]]:
        """The template, and the ids in the path. Only UUIDs are ids: anything else is text of the client."""
        for template, pattern in self._patterns.items():
            if match := pattern.fullmatch(path):
                return template, {name: value for name, value in match.groupdict().items() if _is_uuid(value)}
        return "unknown", {}


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(template)))


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def _reason(body: bytes) -> dict[str, Any]:
    try:
        problem = msgspec.json.decode(body)
        return {"reason": problem["type"].rpartition(":")[2], "detail": problem["detail"]}
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return {"reason": None}


def _log_left_out(kind: str, count: int) -> None:
    log.warning("security events left out: too many in one second", kind=kind, count=count)

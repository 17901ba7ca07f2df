"""Keeps web pages out of a server that is meant for this machine.

Any page that a developer opens can send requests to 127.0.0.1. It can read the answers, too, if its own host name is made to
point there (DNS rebinding). A page cannot change the headers that give it away:

Host             a name of this machine, or one that is allowed; with any port. Rebinding needs a name that its attacker controls.
Origin           of a request that may change something: none, as curl sends it, the server's own, or one that is allowed
Sec-Fetch-Site   of a request that may change something: none, as curl sends it, or that of the server's own pages

The Pub/Sub emulator and the SMS sandbox import nothing else of the project, so each has a copy of this file. A test compares all.
"""

import json
import re
from collections.abc import Collection
from typing import Any

THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "[::1]"})
READING = ("GET", "HEAD", "OPTIONS")
OWN_PAGE = (b"same-origin", b"none")  # `none` is a person who typed the address

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::[0-9]{1,5})?")


class LocalGuard:
    """The ASGI application behind the guard. `names` are further host names that it answers to; pages of `origins` may use it."""

    def __init__(self, app: Any, names: Collection[str] = (), origins: Collection[str] = ()) -> None:
        self._app = app
        self._names = THIS_MACHINE | {name.lower() for name in names}
        self._origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        reason = self._refusal(scope) if scope["type"] == "http" else None
        if reason is None:
            await self._app(scope, receive, send)
            return
        name, detail = reason
        title, kind = name.replace("-", " ").capitalize(), f"urn:fernlabour:problem:{name}"
        body = json.dumps({"status": 403, "type": kind, "title": title, "detail": detail}).encode()
        headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _refusal(self, scope: Any) -> tuple[str, str] | None:
        """The name of the problem and a sentence about it, or None if the request may pass."""
        values = [value.lower() for name, value in scope["headers"] if name == b"host"]
        named = _HOST.fullmatch(values[0].decode("latin-1")) if len(values) == 1 else None
        if named is None or named[1] not in self._names:
            return "wrong-host", f"In local mode this server answers to {', '.join(sorted(self._names))} only."
        if scope["method"] not in READING:
            headers = dict(scope["headers"])
            origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", b"none")
            own = origin in (None, b"http://" + values[0]) and site in OWN_PAGE
            if not own and origin not in self._origins:
                return "foreign-page", "In local mode a page of another origin may change nothing here."
        return None

"""Errors as HTTP answers: problem+json (RFC 9457).

A service maps its own errors to problems in one table. An error that is in no table is a 500 that reveals nothing internal.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from litestar.exceptions import HTTPException, ValidationException
from litestar.plugins.problem_details import ProblemDetailsException
from litestar.types import Send
from sqlalchemy.exc import TimeoutError as PoolExhausted
from structlog import get_logger

from messaging.database import describe, is_transient, refuses_changes
from messaging.errors import RetentionTooShort
from messaging.progress import Outage
from servicekit import text

log = get_logger()

PROBLEMS = "urn:fernlabour:problem:"
_NAMES = {401: "not-authorized", 403: "forbidden", 404: "not-found", 405: "method-not-allowed", 413: "too-large"}

_AGAIN = "Try again, with the same Idempotency-Key if you sent one."

QUIET_SECONDS = 10.0

# Answers hold personal data: forbid caching, framing and guessing of content types.
HARDENED = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)


class Problem(ProblemDetailsException):
    """`name` is stable and ends the problem's type. `detail` is a sentence for people, without personal data."""

    def __init__(
        self, status: int, name: str, detail: str, headers: Mapping[str, str] | None = None, **facts: Any
    ) -> None:
        super().__init__(
            status_code=status,
            type_=PROBLEMS + name,
            title=name.replace("-", " ").capitalize(),
            detail=detail,
            headers=dict(headers or {}),
            extra=facts or None,
        )


def busy(seconds: int = 1) -> Problem:
    """The process handles as many requests as it can. Not `too-busy`, which is about one labour that many requests change."""
    detail = f"The service is handling as many requests as it can. Nothing was changed. Try again in {seconds} s."
    return Problem(503, "busy", detail, {"Retry-After": str(seconds)})


def encode(problem: Problem) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body, for answers that are given before a request reaches Litestar."""
    facts = problem.extra if isinstance(problem.extra, dict) else {}
    known = {"status": problem.status_code, "type": problem.type_, "title": problem.title, "detail": problem.detail}
    body = msgspec.json.encode({**known, **facts})
    headers = {"Content-Type": "application/problem+json", "Content-Length": str(len(body)), **(problem.headers or {})}
    return [*((name.lower().encode(), value.encode()) for name, value in headers.items()), *HARDENED], body


async def send_problem(send: Send, problem: Problem) -> None:
    headers, body = encode(problem)
    await send({"type": "http.response.start", "status": problem.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def problem_table(
    service: Mapping[type[Exception], Callable[[Any], Problem]],
) -> dict[type[Exception], Callable[[Any], ProblemDetailsException]]:
    return {
        HTTPException: _from_http,
        RetentionTooShort: lambda error: Problem(409, "retention-too-short", f"Refused: {error}."),
        PoolExhausted: lambda _: busy(),  # the database answers: its connections are taken
        Exception: _from_anything,
        **service,
    }


def _from_http(error: HTTPException) -> ProblemDetailsException:
    if isinstance(error, ProblemDetailsException):
        return error
    if isinstance(error, ValidationException):
        fields = [
            {"field": str(item.get("key") or "body"), "problem": text.explain(str(item.get("message", "")))}
            for item in error.extra or []
            if isinstance(item, Mapping)
        ]
        detail = "; ".join(f"{item['field']}: {item['problem']}" for item in fields) or error.detail
        return Problem(400, "invalid-request", detail, fields=fields)
    return Problem(error.status_code, _NAMES.get(error.status_code, "invalid-request"), error.detail, error.headers)


def _from_anything(error: Exception) -> ProblemDetailsException:
    """An unreachable database shows in many ways, also as the driver's own errors while it connects."""
    return _unavailable(error) if is_transient(error) else _from_bug(error)


def _unavailable(error: BaseException) -> ProblemDetailsException:
    _outage.report(describe(error))
    if refuses_changes(error):
        return Problem(
            503, "unavailable", f"The database cannot store changes just now. {_AGAIN}", {"Retry-After": "5"}
        )
    # The connection may have broken between the commit and its answer, so the change may or may not be committed.
    return Problem(503, "unavailable", f"The database is not answering just now. {_AGAIN}", {"Retry-After": "1"})


class _RequestOutage(Outage):
    """An outage as requests see it: two log lines and not one for each request. Ends when no request has failed for a while."""

    _end: asyncio.TimerHandle | None = None

    def report(self, why: str) -> None:
        self.failed(why)
        if self._end:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(QUIET_SECONDS, self.over)


_outage = _RequestOutage("database, for requests")


def _from_bug(error: Exception) -> ProblemDetailsException:
    log.error("unexpected error", exc_info=error)
    return Problem(500, "internal-error", f"This service has failed; your request is not at fault. {_AGAIN}")

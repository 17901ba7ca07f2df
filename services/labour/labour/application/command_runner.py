"""One request, one effect: runs a verb and answers, in one transaction, with the caller's idempotency key if there is one."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.di import NamedDependency
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm.exc import StaleDataError

from labour.domain.labour import Labour
from labour.http.auth import Caller
from labour.storage import Labours, VersionChanged
from messaging.unit_of_work import UnitsOfWork
from servicekit import idempotency
from servicekit.idempotency import Answer, Key
from servicekit.problems import Problem

TRIES = 8
_ETAG = re.compile(r'^"v(\d{1,9})"$')
_KEY = re.compile(r'^"?([\x21\x23-\x7e]{1,255})"?$')

T = TypeVar("T")


class TooBusy(Exception):
    """So many people change the same labour at the same moment that we gave up. Nothing was changed."""


class Once:
    """`seen` is the version that the caller has seen (If-Match), or None if it does not matter to them."""

    def __init__(self, units_of_work: UnitsOfWork, caller: Caller, key: Key | None, seen: int | None) -> None:
        self._units_of_work, self._caller, self._key, self._seen = units_of_work, caller, key, seen

    async def __call__(
        self,
        verb: Callable[[Labours], Awaitable[T]],
        view: Callable[[T], Any],
        *,
        status: int = 200,
        location: Callable[[T], str] | None = None,
    ) -> Response[Any]:
        """Optimistic: the version column refuses the later of two writers, who then looks again and decides anew."""
        for _ in range(TRIES):
            try:
                async with self._units_of_work() as uow:
                    answer = await idempotency.find(uow.session, self._key) if self._key else None
                    if answer is not None:
                        return _response(answer, replayed=True)
                    result = await verb(Labours(uow, self._caller.id, self._seen))
                    await uow.session.flush()  # a lost race shows here, before the answer is stored
                    answer = Answer(status, {}, b"" if status == 204 else msgspec.json.encode(view(result)))
                    if location:
                        answer.headers["Location"] = location(result)
                    if isinstance(result, Labour):
                        answer.headers["ETag"] = etag(result.version)
                    if self._key:
                        await idempotency.store(uow.session, self._key, answer)
                return _response(answer, replayed=False)
            except (StaleDataError, IntegrityError):
                if self._seen is not None:
                    raise VersionChanged from None
        raise TooBusy


async def provide_once(
    request: Request[Any, Any, Any], units_of_work: NamedDependency[UnitsOfWork], caller: NamedDependency[Caller]
) -> Once:
    return Once(units_of_work, caller, await _key(request, caller), _seen(request))


async def _key(request: Request[Any, Any, Any], caller: Caller) -> Key | None:
    header = request.headers.get("idempotency-key")
    if header is None:
        return None
    match = _KEY.match(header)
    if match is None:
        raise Problem(
            400, "bad-idempotency-key", "Idempotency-Key takes 1 to 255 visible characters, such as a UUID in quotes."
        )
    identity = f"{request.method} {request.url.path}\n".encode() + await request.body()
    return Key(caller.id, match[1], identity)


def _seen(request: Request[Any, Any, Any]) -> int | None:
    header = request.headers.get("if-match", "*").strip()
    if header == "*":
        return None
    match = _ETAG.match(header)
    if match is None:
        raise Problem(400, "bad-if-match", "If-Match takes the ETag of a labour as you got it, or *.")
    return int(match[1])


def etag(version: int) -> str:
    return f'"v{version}"'


def _response(answer: Answer, *, replayed: bool) -> Response[Any]:
    headers = {**answer.headers, "Idempotency-Replayed": "true"} if replayed else dict(answer.headers)
    return Response(answer.body, status_code=answer.status, headers=headers, media_type="application/json")

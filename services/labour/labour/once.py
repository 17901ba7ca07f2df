"""One request, one effect: runs a verb and answers, in one transaction, with the caller's idempotency key if there is one."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.di import NamedDependency
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm.exc import StaleDataError

from messaging import idempotency
from messaging.idempotency import Answer, Key
from messaging.unit_of_work import UnitOfWork, UnitsOfWork
from messaging.web import Problem

TRIES = 8
_KEY = re.compile(r'^"?([\x21\x23-\x7e]{1,255})"?$')

T = TypeVar("T")


class TooBusy(Exception):
    """So many people change the same labour at the same moment that we gave up. Nothing was changed."""


class Once:
    def __init__(self, units_of_work: UnitsOfWork, key: Key | None) -> None:
        self._units_of_work, self._key = units_of_work, key

    async def __call__(
        self,
        verb: Callable[[UnitOfWork], Awaitable[T]],
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
                    result = await verb(uow)
                    await uow.session.flush()  # a lost race shows here, before the answer is stored
                    headers = {"Location": location(result)} if location else {}
                    body = b"" if status == 204 else msgspec.json.encode(view(result))
                    answer = Answer(status, headers, body)
                    if self._key:
                        await idempotency.store(uow.session, self._key, answer)
                return _response(answer, replayed=False)
            except (StaleDataError, IntegrityError):
                continue
        raise TooBusy


async def provide_once(request: Request[Any, Any, Any], units_of_work: NamedDependency[UnitsOfWork]) -> Once:
    header = request.headers.get("idempotency-key")
    if header is None:
        return Once(units_of_work, None)
    match = _KEY.match(header)
    if match is None:
        raise Problem(
            400, "bad-idempotency-key", "Idempotency-Key takes 1 to 255 visible characters, such as a UUID in quotes."
        )
    identity = f"{request.method} {request.url.path}\n".encode() + await request.body()
    return Once(units_of_work, Key("anyone", match[1], identity))


def _response(answer: Answer, *, replayed: bool) -> Response[Any]:
    headers = {**answer.headers, "Idempotency-Replayed": "true"} if replayed else dict(answer.headers)
    return Response(answer.body, status_code=answer.status, headers=headers, media_type="application/json")

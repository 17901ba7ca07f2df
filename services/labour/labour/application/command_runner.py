"""Runs a command in one transaction: its effect, its events and the answer stored for its idempotency key commit together."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from asyncpg import IntegrityConstraintViolationError

from labour.application.access import CommandContext
from labour.domain.errors import TooBusy, VersionChanged
from messaging.errors import Stale
from messaging.unit_of_work import UnitsOfWork
from servicekit import idempotency
from servicekit.idempotency import Answer, Key, KeyTaken

ATTEMPTS = 8

T = TypeVar("T")
Command = Callable[[CommandContext], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`replayed`: the answer was stored by an earlier request with the same key, and the command did not run."""

    answer: Answer
    replayed: bool


class CommandRunner:
    """`seen` is the version of the labour that the caller has read (If-Match); None if they accept any version."""

    def __init__(
        self, units_of_work: UnitsOfWork, caller: str, key: Key | None = None, seen: int | None = None
    ) -> None:
        self._units_of_work, self._caller, self._key, self._seen = units_of_work, caller, key, seen

    async def run(self, command: Command[T], answer: Callable[[T], Answer]) -> Outcome:
        """Optimistic: of two concurrent writers the version column refuses the later one, which runs the command again.

        Raises `VersionChanged` instead if the caller named a version, and `TooBusy` after `ATTEMPTS` lost races.
        """
        for _ in range(ATTEMPTS):
            try:
                return await self._attempt(command, answer)
            except (Stale, IntegrityConstraintViolationError):
                if self._seen is not None:
                    raise VersionChanged from None
            except KeyTaken:
                pass  # the next attempt finds the answer
        raise TooBusy

    async def _attempt(self, command: Command[T], answer: Callable[[T], Answer]) -> Outcome:
        async with self._units_of_work() as uow:
            stored = await idempotency.find(uow.connection, self._key) if self._key else None
            if stored is not None:
                return Outcome(stored, replayed=True)
            result = await command(CommandContext(uow, self._caller, self._seen))
            await uow.flush()  # a lost race is detected here, before the answer is stored
            outcome = Outcome(answer(result), replayed=False)
            if self._key:
                await idempotency.store(uow.connection, self._key, outcome.answer)
        return outcome

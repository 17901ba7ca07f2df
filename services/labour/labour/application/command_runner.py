"""Runs a command in one transaction: its effect, its events and the answer stored for its idempotency key commit together."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from asyncpg import IntegrityConstraintViolationError

from labour.application.access import CommandContext
from labour.application.allowances import DEFAULT_ALLOWANCES, Allowances
from labour.application.stored_answers import from_store, to_store
from labour.application.usage import KEY_CONSTRAINT, keys_used_up
from labour.domain.errors import LabourError, TooBusy, VersionChanged
from messaging.errors import Stale
from messaging.unit_of_work import UnitsOfWork
from servicekit import idempotency
from servicekit.idempotency import Answer, Key

ATTEMPTS = 8

T = TypeVar("T")
Command = Callable[[CommandContext], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`replayed` is True if the answer was stored by an earlier request with the same key, and the command did not run."""

    answer: Answer
    replayed: bool


class CommandRunner:
    """`seen` is the version of the labour that the caller has read (If-Match); None if they accept any version."""

    def __init__(
        self,
        units_of_work: UnitsOfWork,
        caller: str,
        key: Key | None = None,
        seen: int | None = None,
        allowances: Allowances = DEFAULT_ALLOWANCES,
    ) -> None:
        self._units_of_work, self._allowances = units_of_work, allowances
        self._caller, self._key, self._seen = caller, key, seen

    async def run(self, command: Command[T], answer: Callable[[T], Answer]) -> Outcome:
        """Run the command, or return the answer that is stored for the key.

        The key is looked up after the command has failed, because a repeated request usually fails: its change was made before.
        Raises `LockHeld` while another request with the same key is being handled.
        """
        try:
            return await self._attempt_until_won(command, answer)
        except LabourError:
            if self._key and (stored := await self._find(self._key)):
                return Outcome(stored, replayed=True)
            raise

    async def _attempt_until_won(self, command: Command[T], answer: Callable[[T], Answer]) -> Outcome:
        """Run the command, again if another request changed the labour meanwhile: the version column refuses the later writer.

        Raises `VersionChanged` instead if the caller named a version, and `TooBusy` after `ATTEMPTS` lost races.
        """
        for _ in range(ATTEMPTS):
            try:
                return await self._attempt(command, answer)
            except Stale:
                pass
            except IntegrityConstraintViolationError as error:
                if error.constraint_name == KEY_CONSTRAINT:
                    raise keys_used_up() from None
                if self._key and idempotency.is_taken(error):
                    if stored := await self._find(self._key):
                        return Outcome(stored, replayed=True)
                    continue  # the key had expired
            if self._seen is not None:
                raise VersionChanged
        raise TooBusy

    async def _attempt(self, command: Command[T], answer: Callable[[T], Answer]) -> Outcome:
        uow = self._units_of_work()
        async with uow.locking(self._key.lock) if self._key else uow:
            context = CommandContext(uow, self._caller, self._seen, self._allowances)
            result = await command(context)
            outcome = Outcome(answer(result), replayed=False)
            if self._key:
                idempotency.store(uow, self._key, to_store(outcome.answer))
                context.usage.keys = 1
            await context.usage.record(uow, self._caller, self._allowances)
        return outcome

    async def _find(self, key: Key) -> Answer | None:
        async with self._units_of_work() as uow:
            stored = await idempotency.find(uow.connection, key)
            return stored and await from_store(uow.connection, stored)

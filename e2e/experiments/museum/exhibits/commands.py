"""Mistakes of a command."""

from collections.abc import Callable

from e2e.experiments.museum.exhibit import exhibit
from e2e.experiments.museum.scenarios import commands as scenarios
from labour.application.access import CommandContext
from labour.application.command_runner import Command, CommandRunner, Outcome, T
from messaging import outbox
from messaging.unit_of_work import AFTER_WRITE, UnitOfWork
from servicekit import idempotency
from servicekit.idempotency import Answer

NO_EVENT = "lost: the labour is complete, and no event says so"
TWO_UPDATES = "duplicated: the update was posted 2 times"


@exhibit("outbox after the commit", scenarios.a_request_dies_after_its_change, UnitOfWork, 1, NO_EVENT)
class OutboxAfterTheCommit(UnitOfWork):
    """The change was committed, and its events were written into the outbox afterwards. It looks right because an event
    must not exist before its change, and the insert into the outbox is the next statement. It is a dual write all the
    same, within one database: a crash between the two leaves a change without its event, and the repeated request is
    refused because the change is there.
    """

    async def _commit(self) -> None:
        await self.flush()
        await self.connection.execute("COMMIT")
        await AFTER_WRITE()
        recorded = [event for aggregate, _ in self._seen for event in aggregate.collect()]
        statement, arguments = outbox.insert(self._source, recorded)
        await self.connection.execute(statement, *arguments)


@exhibit("key in another transaction", scenarios.an_answer_is_lost, CommandRunner, 8, TWO_UPDATES)
class KeyInAnotherTransaction(CommandRunner):
    """The idempotency key was stored when the command had succeeded, in a transaction of its own. It looks right
    because only a successful answer may be stored. If the process crashes in between, the effect is there and the key
    is not, and the client, who got no answer, repeats the request.
    """

    async def _attempt(self, command: Command[T], answer: Callable[[T], Answer]) -> Outcome:
        assert self._key
        async with self._units_of_work() as uow:
            if stored := await idempotency.find(uow.connection, self._key):
                return Outcome(stored, replayed=True)
            result = await command(CommandContext(uow, self._caller, self._seen))
        outcome = Outcome(answer(result), replayed=False)
        async with self._units_of_work() as uow:
            idempotency.store(uow, self._key, outcome.answer)
        return outcome

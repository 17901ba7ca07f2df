"""Scenarios of a command."""

from contextlib import suppress
from functools import partial
from uuid import UUID

from sqlalchemy import text

from e2e.experiments.museum.testbed import Testbed
from e2e.support.crash import crash_at
from labour.application.access import CommandContext
from labour.application.command_runner import CommandRunner
from labour.application.commands import complete_labour, plan_labour, post_update
from labour.domain.errors import LabourAlreadyCompleted
from labour.domain.update import Update, UpdateKind
from messaging import unit_of_work
from messaging.unit_of_work import UnitOfWork
from servicekit.idempotency import Answer, Key

ADA = "ada"  # the user id of the mother


async def a_request_dies_after_its_change(bed: Testbed, part: type[UnitOfWork]) -> list[str]:
    """A mother completes her labour. The API crashes when the change is written and its event is not. The client repeats the
    request.
    """
    labour_id = await _labour(bed)

    async def complete() -> None:
        async with part(bed.labour, source="labour", committed=lambda: None) as uow:
            await complete_labour(CommandContext(uow, ADA), labour_id)

    with crash_at(unit_of_work.AFTER_WRITE):
        await complete()
    with suppress(LabourAlreadyCompleted):
        await complete()

    completed = await _count(bed, "labour WHERE phase = 'complete'")
    events = await _count(bed, "outbox WHERE topic = 'labour.completed'")
    return ["lost: the labour is complete, and no event says so"] if completed > events else []


async def an_answer_is_lost(bed: Testbed, part: type[CommandRunner]) -> list[str]:
    """A mother posts an update. The API crashes after the commit, before it answers. The client repeats the request with the same
    idempotency key.
    """
    labour_id = await _labour(bed)
    post = partial(post_update, labour_id=labour_id, kind=UpdateKind.STATUS, text="Soon")
    key = Key(ADA, "key-1", b"status: Soon")

    with crash_at(unit_of_work.AFTER_COMMIT):
        await part(bed.in_labour, ADA, key).run(post, _answer)
    await part(bed.in_labour, ADA, key).run(post, _answer)

    posted = await _count(bed, "labour_update")
    return [] if posted == 1 else [f"duplicated: the update was posted {posted} times"]


def _answer(update: Update) -> Answer:
    return Answer(201, {}, str(update.id).encode())


async def _labour(bed: Testbed) -> UUID:
    async with bed.in_labour() as uow:
        context = CommandContext(uow, ADA)
        labour = await plan_labour(context, mother_name="Ada")
        return labour.id


async def _count(bed: Testbed, rows: str) -> int:
    async with bed.labour.connect() as connection:
        count: int = (await connection.execute(text(f"SELECT count(*) FROM {rows}"))).scalar_one()
        return count

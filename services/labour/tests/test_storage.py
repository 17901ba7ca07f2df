"""A labour is stored with all its parts, only what changed is written, and of two concurrent writers one is refused."""

from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from asyncpg import IntegrityConstraintViolationError, PostgresError
from sqlalchemy.ext.asyncio import AsyncEngine

from labour.application.access import CommandContext
from labour.application.command_runner import CommandRunner
from labour.domain.labour import Labour
from labour.domain.subscriber import Channel
from labour.storage import Labours
from messaging.errors import LockHeld, Stale
from messaging.unit_of_work import UnitsOfWork
from servicekit import idempotency
from servicekit.idempotency import Answer, Key
from tests.labour_parts import MINUTE, NOW, SECOND, execute, fetch, planned

KEY = Key("ada", "a key", b"a request")
FIRST = Answer(200, {"ETag": '"v1"'}, b"the first answer")


def _eventful() -> Labour:
    """A labour with parts of every kind, and every optional attribute set somewhere and unset elsewhere."""
    labour = planned()
    labour.subscribe(name="Grace", phone="+12025550123", at=NOW)
    labour.invite(token="one", expires_at=NOW + timedelta(days=1), at=NOW)
    labour.revoke_invite(labour.invite(token="two", expires_at=NOW + timedelta(days=1), at=NOW).id, NOW)
    labour.request(token="one", user_id="alan", name="Alan", phone="+12025550199", channel=Channel.SMS, at=NOW)
    labour.begin(NOW)
    first = labour.start_contraction(NOW, NOW)
    labour.end_contraction(first.id, NOW + SECOND, 7, NOW + SECOND)
    labour.start_contraction(NOW + MINUTE, NOW + MINUTE)
    return labour


def _state(labour: Labour) -> dict[str, Any]:
    parts = {name: [vars(one) for one in getattr(labour, name)] for name in ("subscribers", "contractions", "invites")}
    return {**{name: value for name, value in vars(labour).items() if name != "_recorded"}, **parts}


async def _add(units_of_work: UnitsOfWork, labour: Labour) -> UUID:
    async with units_of_work() as uow:
        await Labours(uow).add(labour)
    return labour.id


async def test_a_labour_is_loaded_as_it_was_saved(labour_units: UnitsOfWork) -> None:
    labour = _eventful()

    await _add(labour_units, labour)

    async with labour_units() as uow:
        assert _state(await Labours(uow).get(labour.id)) == _state(labour)


async def test_a_change_writes_the_parts_that_changed_and_no_other(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine
) -> None:
    labour_id = await _add(labour_units, _eventful())
    written = "SELECT id, xmin::text FROM {} ORDER BY id"
    before = {table: await fetch(labour_engine, written.format(table)) for table in ("subscriber", "contraction")}

    async with labour_units() as uow:
        labour = await Labours(uow).get(labour_id)
        labour.delete_contraction(labour.contractions[1].id, NOW + MINUTE)
        changed = labour.approve(labour.subscribers[1].id, NOW)

    after = {table: await fetch(labour_engine, written.format(table)) for table in before}
    assert after["contraction"] == before["contraction"][:1]
    assert after["subscriber"][0] == before["subscriber"][0]
    assert after["subscriber"][1] != before["subscriber"][1]
    assert await fetch(labour_engine, f"SELECT state FROM subscriber WHERE id = '{changed.id}'") == ["approved"]


async def test_a_labour_that_was_only_read_is_not_written(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine
) -> None:
    labour_id = await _add(labour_units, _eventful())
    before = await fetch(labour_engine, "SELECT xmin::text FROM labour")

    async with labour_units() as uow:
        await Labours(uow).get(labour_id)

    assert await fetch(labour_engine, "SELECT xmin::text FROM labour") == before


async def test_of_two_who_loaded_the_same_version_the_second_is_refused_and_writes_nothing(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine
) -> None:
    labour_id = await _add(labour_units, planned())

    with pytest.raises(Stale):  # noqa: PT012  (the end of the unit of work raises it)
        async with labour_units() as second:
            late = await Labours(second).get(labour_id)
            async with labour_units() as first:
                (await Labours(first).get(labour_id)).begin(NOW)
            late.subscribe(name="Grace", phone="+12025550123", at=NOW)

    assert await fetch(labour_engine, "SELECT phase, version FROM labour") == [("early", 2)]
    assert await fetch(labour_engine, "SELECT id FROM subscriber") == []
    assert await fetch(labour_engine, "SELECT topic FROM outbox ORDER BY position") == [
        "labour.planned",
        "labour.begun",
    ]


async def test_a_stored_answer_is_never_replaced_before_it_expires(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine
) -> None:
    async with labour_units() as uow:
        idempotency.store(uow, KEY, FIRST)

    with pytest.raises(IntegrityConstraintViolationError) as refusal:
        await _store_another(labour_units)
    assert idempotency.is_taken(refusal.value)

    async with labour_units() as uow:
        assert await idempotency.find(uow.connection, KEY) == FIRST
    await execute(labour_engine, "UPDATE idempotency_key SET expires_at = now() - interval '1 second'")
    async with labour_units() as uow:
        assert await idempotency.find(uow.connection, KEY) is None
    await _store_another(labour_units)


async def _store_another(units_of_work: UnitsOfWork) -> None:
    async with units_of_work() as uow:
        idempotency.store(uow, KEY, Answer(200, {}, b"another answer"))


async def test_an_answer_that_was_stored_by_another_request_is_replayed_and_our_effect_is_rolled_back(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine
) -> None:
    async with labour_units() as first:
        idempotency.store(first, KEY, FIRST)

    async def succeed_again(context: CommandContext) -> None:
        await context.labours.add(planned())

    outcome = await CommandRunner(labour_units, "ada", KEY).run(succeed_again, lambda _: Answer(200, {}, b"second"))

    assert (outcome.answer, outcome.replayed) == (FIRST, True)
    assert await fetch(labour_engine, "SELECT id FROM labour") == []
    assert await fetch(labour_engine, "SELECT event_id FROM outbox") == []


async def test_while_a_request_is_handled_another_one_with_its_key_is_refused(labour_units: UnitsOfWork) -> None:
    async with labour_units().locking(KEY.lock):
        runner = CommandRunner(labour_units, "ada", KEY)
        with pytest.raises(LockHeld):
            await runner.run(_do_nothing, lambda _: FIRST)

    assert not (await runner.run(_do_nothing, lambda _: FIRST)).replayed


async def _do_nothing(_: CommandContext) -> None:
    pass


async def test_an_error_that_was_hidden_fails_the_commit(labour_units: UnitsOfWork) -> None:
    uow = labour_units()
    await uow.__aenter__()
    with suppress(PostgresError):
        await uow.connection.execute("SELECT 1 / 0")

    with pytest.raises(RuntimeError, match="nothing is committed"):
        await uow.__aexit__(None, None, None)


async def test_a_connection_that_broke_in_a_unit_of_work_is_not_used_again(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine
) -> None:
    used = labour_units()
    await used.__aenter__()
    pid = used.connection.get_server_pid()
    used.connection.terminate()
    await used.__aexit__(None, ConnectionResetError(), None)

    async with labour_units() as another:
        assert another.connection.get_server_pid() != pid
    assert labour_engine.pool.checkedout() == 0  # type: ignore[attr-defined]

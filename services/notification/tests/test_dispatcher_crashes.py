"""A dispatcher crashes at each fault point, under each fault of the provider, and is started again: each person has one text.

First inside this process, where a crash is an exception that the code cannot handle, and the crashed tasks pass no further fault
point. Then with a process of its own, which is killed.
"""

import asyncio
import contextlib
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import units_of_work
from e2e.support.crash import SimulatedCrash
from e2e.support.databases import fresh_database
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging.database import create_engine
from messaging.faults import POINTS
from sms_sandbox.faults import KINDS

from .sms_parts import ACCOUNT, SENDER, TOKEN, PostOffice, post_office

CRASH_POINTS = sorted(name for name in POINTS if name.startswith(("dispatcher.", "reconcile.")))

# Every fault of creating or listing messages. Those of callbacks and of delivery do not matter here.
FAULTS = sorted(name for name in KINDS if not name.startswith("callbacks-") and name != "undelivered")

# Seconds. The tests pass with any values, as long as a message is hidden for less than the quarantine.
TIMEOUT, LEASE, HIDDEN, QUARANTINE = 0.5, 1.2, 0.2, 1.5


@dataclass(eq=False)
class Life:
    """One run of a dispatcher until its crash. After the crash its tasks end at the next fault point that they reach."""

    crash_at: str | None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


_life: ContextVar[Life] = ContextVar("life")


@pytest.fixture(autouse=True)
def armed() -> Iterator[None]:
    for name in CRASH_POINTS:

        async def crash(name: str = name) -> None:
            life = _life.get()
            if life.crash_at == name:
                life.ended.set()
            if life.ended.is_set():
                raise SimulatedCrash

        POINTS[name].arm(crash)
    yield
    for name in CRASH_POINTS:
        POINTS[name].disarm()


async def live(office: PostOffice, life: Life) -> None:
    """Runs a dispatcher and a reconciler until they crash or every message is sent or failed."""
    _life.set(life)  # only for the tasks below: each run has a context of its own
    stop = asyncio.Event()
    sender = office.dispatcher(lease_seconds=LEASE, call_within=(LEASE - TIMEOUT) / 2)
    reconciler = office.reconciler(quarantine=QUARANTINE, ask_interval=0.1)
    work = [asyncio.create_task(sender.run(stop)), asyncio.create_task(reconciler.run(stop))]
    quiet = asyncio.create_task(eventually(lambda: unsettled(office), lambda count: count == 0))
    ended = asyncio.create_task(life.ended.wait())
    try:
        await asyncio.wait([quiet, ended], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*work, quiet, ended):
            task.cancel()
        results = await asyncio.gather(*work, quiet, ended, return_exceptions=True)
    unexpected = [result for result in results if isinstance(result, Exception)]
    assert not unexpected, unexpected


async def unsettled(office: PostOffice) -> int:
    async with office.units() as uow:
        count = await uow.connection.fetchval(
            "SELECT count(*) FROM notification WHERE state IN ('PENDING', 'SENDING', 'IN_DOUBT')"
        )
    return int(count or 0) + (office.sms.sandbox.store.next_step_at() is not None)


def set_faults(office: PostOffice, fault: str) -> None:
    """The fault hits two of the three messages, and the third loses its answer, so that one is always in doubt."""
    seconds = 2 * TIMEOUT if fault == "slow" else HIDDEN
    office.fault(fault, times=2, **({"seconds": seconds} if "seconds" in KINDS[fault].parameters else {}))
    if fault == "list-lag":
        office.fault("reply-lost", times=3)  # only messages in doubt are listed
    elif fault != "reply-lost":
        office.fault("reply-lost", times=1)


@contextlib.asynccontextmanager
async def office_at(url: str, data_dir: Path, **options: float) -> AsyncIterator[PostOffice]:
    engine = create_engine(url, process="test", pool_size=10, connect_timeout=60)
    try:
        async with post_office(units_of_work(engine, "notification"), data_dir, **options) as office:
            yield office
    finally:
        await engine.dispose()


async def crash_and_recover(server: TemporaryServer, data_dir: Path, point: str, fault: str) -> list[str]:
    """Crash a dispatcher, start it again, and return what is wrong afterwards; empty if nothing is."""
    async with office_at(await fresh_database(server, "notification"), data_dir, timeout=TIMEOUT) as office:
        everyone = await office.post_many(3)
        set_faults(office, fault)

        first = Life(crash_at=point)
        await asyncio.create_task(live(office, first))
        await asyncio.create_task(live(office, Life(crash_at=None)))

        problems = [] if first.ended.is_set() else [f"{fault}: never reached {point}"]
        for one in everyone:
            state, events, texts = await office.state(one.id), await office.events(one.id), len(office.texts(one))
            told = {"SENT": (1, ["notification.sent"]), "FAILED": (0, ["notification.failed"])}.get(state)
            if (texts, events) != told or (state == "FAILED" and fault != "refused"):
                problems.append(f"{fault}: {state}, {texts} texts, {events}")
        return problems


@pytest.mark.parametrize("point", CRASH_POINTS)
async def test_each_person_has_one_text_after_a_crash_here_whatever_the_provider_did(
    postgres: TemporaryServer, tmp_path: Path, point: str
) -> None:
    found = await asyncio.gather(*(crash_and_recover(postgres, tmp_path / fault, point, fault) for fault in FAULTS))

    assert [problem for problems in found for problem in problems] == []


# In a process of its own


async def test_each_person_has_one_text_after_the_process_was_killed_at_each_point(
    postgres: TemporaryServer, tmp_path: Path
) -> None:
    found = await asyncio.gather(*(kill_and_restart(postgres, tmp_path / point, point) for point in CRASH_POINTS))

    assert dict(zip(CRASH_POINTS, found, strict=True)) == {point: Counter({("SENT", 1): 3}) for point in CRASH_POINTS}


async def kill_and_restart(server: TemporaryServer, data_dir: Path, point: str) -> Counter[tuple[str, int]]:
    url = await fresh_database(server, "notification")
    async with office_at(url, data_dir) as office:
        everyone = await office.post_many(3)
        office.fault("reply-lost", times=2)
        environment = {
            **os.environ,
            "FERN_MODE": "local",
            "NOTIFICATION_DATABASE_URL": url,
            "TWILIO_BASE_URL": office.sms.url,
            "TWILIO_ACCOUNT_SID": ACCOUNT,
            "TWILIO_AUTH_TOKEN": TOKEN,
            "TWILIO_FROM": SENDER,
            "SMS_TIMEOUT_SECONDS": "1",
            "SMS_LEASE_SECONDS": "2",
            "SMS_QUARANTINE_SECONDS": "2",
            "SMS_ASK_SECONDS": "0.2",
        }
        async with dispatcher_process(environment | {"FERN_CRASH_AT": point}) as doomed:
            assert await asyncio.wait_for(doomed.wait(), 240) == -9
        async with dispatcher_process(environment):
            await eventually(lambda: unsettled(office), lambda count: count == 0)
        return Counter([(await office.state(one.id), len(office.texts(one))) for one in everyone])


@contextlib.asynccontextmanager
async def dispatcher_process(environment: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "notification", "dispatcher"), env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait_for(process.wait(), 60)

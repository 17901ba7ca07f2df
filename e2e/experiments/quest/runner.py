"""Runs designs against faults, each in an environment of its own with the same labours, until nothing is being processed any
more; then counts the texts on the phones.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from e2e.experiments.quest.designs import BackgroundProcess, Design, NotAccepted
from e2e.experiments.quest.environment import (
    AT_ONCE,
    Environment,
    FaultNames,
    LabourOutcome,
    new_environment,
    subscription,
)
from e2e.experiments.quest.faults import Case, RolledBack, commit_fault
from e2e.support.crash import SimulatedCrash
from e2e.support.databases import fresh_databases, migrated_server
from fern.errors import FernError
from fern.output import counting
from fern.runtime.postgres import TemporaryServer
from labour.domain.errors import LabourAlreadyCompleted
from messaging.bus import Message
from messaging.consumer import Verdict
from messaging.errors import BusUnavailable

ENVIRONMENTS = 2  # at once: one works while the other waits
TRIES = 10  # of a client: more than there are faults that can keep it from an answer
ACK_DEADLINE = 1  # seconds after which an unacknowledged message is delivered again
DONE_WITHIN = 300.0  # seconds


def compare(faults: Sequence[FaultNames], designs: Sequence[type[Design]]) -> dict[str, list[LabourOutcome]]:
    """Run the designs on a temporary PostgreSQL, with a progress bar. The result is that of `run_designs`."""
    with (
        counting("labours", len(faults) * len(designs)) as advance,
        tempfile.TemporaryDirectory(prefix="fern-quest-") as directory,
        migrated_server(Path(directory)) as server,
    ):
        return asyncio.run(run_designs(server, faults, designs, advance))


async def run_designs(
    server: TemporaryServer,
    faults: Sequence[FaultNames],
    designs: Sequence[type[Design]],
    advance: Callable[[int], None] = lambda count: None,
) -> dict[str, list[LabourOutcome]]:
    """Run the designs. Returns for each, by name, the outcome of each labour, in the order of `faults`.

    The server must have the services' migrated databases, to be copied.
    """
    asyncio.get_running_loop().set_exception_handler(_ignore_crashes)
    databases = asyncio.Queue[dict[str, str]]()  # used again by the next design, with other labours
    for _ in range(min(ENVIRONMENTS, len(designs))):
        databases.put_nowait(await fresh_databases(server))

    async def run(design: type[Design]) -> list[LabourOutcome]:
        urls = await databases.get()
        async with new_environment(urls, faults, design.timeout) as environment:
            await run_design(design(environment.parts), environment, advance)
            outcomes = await environment.outcomes()
        databases.put_nowait(urls)
        return outcomes

    runs = [asyncio.create_task(run(design)) for design in designs]
    try:
        return dict(zip((design.name for design in designs), await asyncio.gather(*runs), strict=True))
    finally:
        for one in runs:
            one.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


def _ignore_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A simulated crash ends its task with an exception that is never retrieved."""
    if not isinstance(context.get("exception"), SimulatedCrash):
        loop.default_exception_handler(context)


async def run_design(design: Design, environment: Environment, advance: Callable[[int], None]) -> None:
    """Run one design, from the first request until nothing is being processed any more."""
    stop, turns = asyncio.Event(), asyncio.Semaphore(AT_ONCE)
    cases, finished = environment.cases, 0
    clients = {case.labour_id: asyncio.create_task(client(design, environment, case, turns)) for case in cases}
    consumers = [asyncio.create_task(consume(design, subscription(case.labour_id), turns)) for case in cases]
    processes = [asyncio.create_task(keep_running(process, stop)) for process in design.processes()]
    deadline = time.monotonic() + DONE_WITHIN
    try:
        while unfinished := await environment.unfinished(clients):
            advance(len(cases) - len(unfinished) - finished)
            finished = len(cases) - len(unfinished)
            if time.monotonic() > deadline:
                raise FernError(f"{design.name}: {len(unfinished)} labours are unfinished after {DONE_WITHIN:g} s.")
            for task in (*clients.values(), *consumers, *processes):
                if task.done():
                    task.result()  # raises what is a bug of this experiment
            await asyncio.sleep(0.2)
        advance(len(cases) - finished)
    finally:
        stop.set()
        for task in (*clients.values(), *consumers):
            task.cancel()
        await asyncio.gather(*clients.values(), *consumers, *processes, return_exceptions=True)


async def client(design: Design, environment: Environment, case: Case, turns: asyncio.Semaphore) -> None:
    """Requests the completion, and repeats the request if there is no answer or a transient error."""
    commit_fault.set(partial(environment.schedule.may_fail_request, case.labour_id))
    for _ in range(TRIES):
        try:
            async with turns:
                await design.complete(case.labour_id)
        except SimulatedCrash:
            continue
        except BusUnavailable:
            if "refuse-publish" not in case.faults:
                raise  # a real outage of the bus would spoil the count
            continue
        except (RolledBack, LabourAlreadyCompleted):
            return
        if not environment.schedule.strikes("answer-lost", case.labour_id):
            return


async def consume(design: Design, name: str, turns: asyncio.Semaphore) -> None:
    """Handles messages that are delivered together at the same time, as several consumers would.

    A slow machine causes no redelivery: the bus accepts a late acknowledgement, and the next pull comes only after it.
    """
    bus = design.parts.bus

    async def deliver(message: Message) -> None:
        with suppress(SimulatedCrash):  # then no answer is sent, and the message is delivered again
            try:
                async with turns:
                    verdict = await design.handle(message)
            except NotAccepted:
                verdict = Verdict.NACK
            if verdict is Verdict.ACK:
                await bus.acknowledge(name, [message.ack_id])
            else:
                await bus.modify_deadline(name, [message.ack_id], 0)

    while True:
        if messages := await bus.pull(name, 10, wait=30.0):
            await bus.modify_deadline(name, [message.ack_id for message in messages], ACK_DEADLINE)
            await asyncio.gather(*map(deliver, messages))


async def keep_running(process: BackgroundProcess, stop: asyncio.Event) -> None:
    while not stop.is_set():
        with suppress(SimulatedCrash):
            await process(stop)

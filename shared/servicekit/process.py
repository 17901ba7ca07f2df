"""Runs every long-running process: logs, settings errors, signals, heartbeat, and a graceful stop with a time limit.

On SIGTERM a process finishes the work in progress. Work that takes longer than `STOP_SECONDS` (a bus that hangs, an unreachable
database) is cancelled and rolled back, so that another process can take it.

Health means progress (`messaging.progress`), not that the event loop turns. Every 2 s a process writes its state to the heartbeat
file, as JSON: `{"state": "working"}`, or `waiting` for a dependency with the reason. A step that takes longer than `STEP_SECONDS`
although no outage is known is a hang: the process logs it and ends at once, and its supervisor starts it again. That is safe,
because every step may be cut off at any point.

Environment, with unit and default:
HEARTBEAT_FILE   path of the heartbeat file; unset means none
STEP_SECONDS     seconds that a step may take before the process counts as stuck (60)

Exit codes: 0 stopped as asked; 1 crashed; 64 no such role (EX_USAGE); 70 stuck (EX_SOFTWARE); 78 the settings are wrong
(EX_CONFIG).
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import uvloop
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog import get_logger

from messaging import progress
from messaging.backoff import wait
from messaging.database import describe, is_transient, ping
from messaging.errors import SettingsError
from messaging.progress import Outage
from servicekit.logs import configure
from servicekit.settings import Environment

log = get_logger()

HEARTBEAT_SECONDS = 2.0
PING_INTERVAL = 5.0
STUCK = 70
STOP_SECONDS = 9.0  # the supervisor and Cloud Run send SIGKILL after ten

Main = Callable[[asyncio.Event], Awaitable[None]]


def run_role(service: str, roles: Mapping[str, Main]) -> None:
    """Run the process that the command line names: `python -m <service> <role>`."""
    role = " ".join(sys.argv[1:])
    if role not in roles:
        sys.stderr.write(f"usage: python -m {service} {{{'|'.join(roles)}}}\n")
        sys.exit(64)
    run(f"{service}-{role.split()[0]}", roles[role])


def run(process: str, main: Main) -> None:
    """Run `main(stop)` until it returns. SIGTERM and SIGINT set `stop`; `main` then finishes its work and returns."""
    configure(process, os.environ.get("LOG_LEVEL", "INFO"))
    try:
        # The role's own settings report all other variables that are wrong, together.
        settings = Environment({"STEP_SECONDS": os.environ.get("STEP_SECONDS", "")})
        step_seconds = settings.number("STEP_SECONDS", progress.STEP_SECONDS, float, least=1)
        settings.check()
        uvloop.run(_supervised(main, step_seconds))
    except SettingsError as error:
        sys.stderr.write(f"{process}: {error}\n")
        sys.exit(78)
    log.info("process stopped")


async def _supervised(main: Main, step_seconds: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    heartbeat = asyncio.create_task(_heartbeat(step_seconds), name="heartbeat")
    working, asked = asyncio.ensure_future(main(stop)), asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([working], timeout=STOP_SECONDS)
        if not working.done():
            log.warning("stopping took too long, rolling back what is under way", seconds=STOP_SECONDS)
            working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    finally:
        heartbeat.cancel()
        asked.cancel()


async def _heartbeat(step_seconds: float) -> None:
    path = os.environ.get("HEARTBEAT_FILE")
    while True:
        now = progress.state(step_seconds=step_seconds)
        if path:
            _write(Path(path), now)
        if now.state == "stuck":
            log.critical("stuck, ending so that the supervisor starts the process again", doing=now.reason)
            sys.stdout.flush()
            os._exit(STUCK)  # a graceful stop would wait for the step that hangs
        await asyncio.sleep(HEARTBEAT_SECONDS)


def _write(path: Path, state: progress.State) -> None:
    """Replace the file, so that a reader never sees half of it."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(state._asdict()))
    beside.replace(path)


async def watch_database(*engines: AsyncEngine) -> None:
    """Ping every `PING_INTERVAL`, until cancelled: a process without work notices an outage too, and connections that went silent
    are replaced before they are needed.
    """
    outage = Outage("database, by a ping,")
    while True:
        try:
            for engine in engines:
                await ping(engine)
            outage.over()
            pause = PING_INTERVAL
        except Exception as error:
            if not is_transient(error):
                raise
            pause = outage.failed(describe(error))
        await asyncio.sleep(pause)


async def until_ready(what: str, check: Callable[[], Awaitable[None]], stop: asyncio.Event) -> bool:
    """Wait until a dependency answers, with growing pauses. False if `stop` is set first."""
    outage = Outage(what, base=0.2, cap=3.0)
    while not stop.is_set():
        try:
            await check()
            outage.over()
            return True
        except Exception as error:
            await wait(stop, outage.failed(f"{type(error).__name__}: {error}"[:300]))
    return False

"""Runs every long-running process: logs, settings errors, signals, heartbeat, and a graceful stop with a time limit.

On SIGTERM a process finishes the work in progress. Work that takes longer than `STOP_SECONDS` (a bus that hangs, an unreachable
database) is cancelled and rolled back, so that another process can take it.

Environment: HEARTBEAT_FILE, touched every 2 s while the event loop turns; unset means no heartbeat.
Exit codes: 0 stopped as asked; 1 crashed; 64 no such role (EX_USAGE); 78 the settings are wrong (EX_CONFIG).
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import uvloop
from structlog import get_logger

from messaging.backoff import Backoff, wait
from messaging.errors import SettingsError
from servicekit.logs import configure

log = get_logger()

HEARTBEAT_SECONDS = 2.0
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
        uvloop.run(_supervised(main))
    except SettingsError as error:
        sys.stderr.write(f"{process}: {error}\n")
        sys.exit(78)
    log.info("process stopped")


async def _supervised(main: Main) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    heartbeat = asyncio.create_task(_heartbeat(), name="heartbeat")
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


async def _heartbeat() -> None:
    if path := os.environ.get("HEARTBEAT_FILE"):
        while True:
            Path(path).touch()  # noqa: ASYNC240  (a touch of a local file, every two seconds)
            await asyncio.sleep(HEARTBEAT_SECONDS)


async def until_ready(what: str, check: Callable[[], Awaitable[None]], stop: asyncio.Event) -> bool:
    """Wait until a dependency answers, with growing pauses. False if `stop` is set first."""
    backoff = Backoff(base=0.2, cap=3.0)
    while not stop.is_set():
        try:
            await check()
            return True
        except Exception as error:
            pause = backoff.next()
            log.warning("waiting for a dependency", dependency=what, error=str(error)[:300], retry_in=round(pause, 2))
            await wait(stop, pause)
    return False

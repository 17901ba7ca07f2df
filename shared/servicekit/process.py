"""Runs every long-running process: logs, settings errors, signals, heartbeat, and a graceful stop with a time limit.

On SIGTERM a process finishes the work in progress. Work that takes longer than `STOP_SECONDS` (a bus that hangs, an unreachable
database) is cancelled and rolled back, so that another process can take it.

Health means progress (`messaging.progress`), not that the event loop turns. Every 2 s a process writes its state to the heartbeat
file, as JSON: `{"state": "working"}`, or `waiting` for a dependency with the reason. A step that takes longer than `STEP_SECONDS`
although no outage is known is a hang: the process logs it and ends at once, and its supervisor starts it again. That is safe,
because every step may be cut off at any point.

Environment, with unit and default:
FERN_MODE              `local` on one machine, with development values; unset everywhere else
LOG_LEVEL              DEBUG, INFO, WARNING or ERROR (INFO; local DEBUG)
HEARTBEAT_FILE         path of the heartbeat file; unset means none
MONITOR_…              the listener for probes and metrics (none): servicekit/monitor.py
STEP_SECONDS           seconds that a step may take before the process counts as stuck (60)
PUBSUB_EMULATOR_HOST   host and port of a Pub/Sub emulator; unset means the real service, with default credentials
OTEL_…                 where traces are sent (nowhere): servicekit/telemetry.py
FERN_CRASH_AT          a fault point at which the process kills itself (none): messaging/faults.py; refused unless local
FERN_CLOCK_OFFSET      seconds by which the clock of the process is wrong (0): messaging/clock.py; refused unless local

Exit codes: 0 stopped as asked; 1 crashed; 64 no such role (EX_USAGE); 70 stuck (EX_SOFTWARE); 78 the settings are wrong
(EX_CONFIG).
"""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import uvloop
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog import get_logger

from messaging import metrics, progress
from messaging.backoff import wait
from messaging.database import describe, is_transient, ping
from messaging.errors import SettingsError
from messaging.progress import Outage
from servicekit import metrics_export, telemetry
from servicekit.logs import configure
from servicekit.monitor import Monitor
from servicekit.settings import Environment

log = get_logger()

HEARTBEAT_SECONDS = 2.0
PING_INTERVAL = 5.0
STUCK = 70
STOP_SECONDS = (
    8.0  # the supervisor and Cloud Run send SIGKILL after ten, and the last spans and metrics take up to 1.6 s
)

Main = Callable[[asyncio.Event], Awaitable[None]]


def run_role(service: str, roles: Mapping[str, Main]) -> None:
    """Run the process that the command line names: `python -m <service> <role>`."""
    role = " ".join(sys.argv[1:])
    if role not in roles:
        sys.stderr.write(f"usage: python -m {service} {{{'|'.join(roles)}}}\n")
        sys.exit(64)
    run(f"{service}-{role.split()[0]}", roles[role], monitored=" " not in role)  # a drain ends by itself


def collect_garbage_rarely() -> None:
    """Python looks for reference cycles after every 700 new objects. A batch of events makes thousands and leaves none, because
    reference counts free them. Looking less often saves a quarter of the consumer's CPU time.
    """
    gc.set_threshold(20_000, 20, 50)


def run(process: str, main: Main, *, monitored: bool = True) -> None:
    """Run `main(stop)` until it returns. SIGTERM and SIGINT set `stop`; `main` then finishes its work and returns.

    A `monitored` process has the listener of `servicekit.monitor`, if MONITOR_PORT is set.
    """
    configure(process, os.environ.get("LOG_LEVEL", "INFO"))
    collect_garbage_rarely()
    try:
        # The role's own settings report all other variables that are wrong, together.
        names = ("STEP_SECONDS", "MONITOR_HOST", "MONITOR_PORT", "FERN_MODE")
        settings = Environment({name: os.environ.get(name, "") for name in names})
        step_seconds = settings.number("STEP_SECONDS", progress.STEP_SECONDS, float, least=1)
        host, port = settings.optional("MONITOR_HOST", "127.0.0.1"), settings.number("MONITOR_PORT", -1, int)
        settings.check()
        monitored = monitored and port >= 0
        stop_traces = telemetry.start(process)
        stop_metrics = metrics_export.start(process, monitored=monitored)
        monitor = Monitor(step_seconds=step_seconds, names=(process,) if settings.local else None)
        listening = monitor.listening(host, port) if monitored else contextlib.nullcontext()
        try:
            uvloop.run(_supervised(main, step_seconds, monitor, listening))
        finally:
            stop_traces()
            stop_metrics()
    except SettingsError as error:
        sys.stderr.write(f"{process}: {error}\n")
        sys.exit(78)
    log.info("process stopped")


async def _supervised(
    main: Main, step_seconds: float, monitor: Monitor, listening: AbstractAsyncContextManager[None]
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with listening:
        await _until_done(main, step_seconds, monitor, stop)


async def _until_done(main: Main, step_seconds: float, monitor: Monitor, stop: asyncio.Event) -> None:
    heartbeat = asyncio.create_task(_heartbeat(step_seconds, monitor), name="heartbeat")
    lag = asyncio.create_task(metrics_export.watch_event_loop(), name="event loop lag")
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
        lag.cancel()
        asked.cancel()


async def _heartbeat(step_seconds: float, monitor: Monitor) -> None:
    path = os.environ.get("HEARTBEAT_FILE")
    while True:
        now = progress.state(step_seconds=step_seconds)
        metrics.process_waits(progress.waiting_seconds())
        if path:
            with contextlib.suppress(
                OSError
            ):  # the disk is full: the file stays as it is, and so looks old to its readers
                _write(Path(path), now, monitor.port)
        if now.state == "stuck":
            log.critical("stuck, ending so that the supervisor starts the process again", doing=now.reason)
            sys.stdout.flush()
            os._exit(STUCK)  # a graceful stop would wait for the step that hangs
        await asyncio.sleep(HEARTBEAT_SECONDS)


def _write(path: Path, state: progress.State, monitor_port: int | None = None) -> None:
    """Replace the file, so that a reader never sees half of it."""
    beside = path.with_name(f"{path.name}.new")
    port = {} if monitor_port is None else {"monitor_port": monitor_port}
    beside.write_text(json.dumps(state._asdict() | port))
    beside.replace(path)


@contextlib.asynccontextmanager
async def background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` beside the block and cancel it at the end. If any of it fails, the process is stopped: it must not go on, and be
    reported as healthy, without a part of its work.
    """
    tasks = [asyncio.create_task(one) for one in work]
    for task in tasks:
        task.add_done_callback(_stop_if_failed)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _stop_if_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("background work failed, stopping the process", exc_info=error)
        signal.raise_signal(signal.SIGTERM)  # its supervisor starts it again


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

"""Runs the sandbox: in the foreground for `sms-sandbox serve`, or inside a test with `running`."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.plugins.problem_details import ProblemDetailsConfig, ProblemDetailsPlugin
from litestar.types import Scope

from sms_sandbox.errors import PortInUse, TwilioError
from sms_sandbox.faults import BadFault
from sms_sandbox.local_guard import LocalGuard
from sms_sandbox.sandbox import Sandbox, Settings
from sms_sandbox.sandbox_api import FaultSwitches, Phones, health, page_file, show_phones
from sms_sandbox.twilio_api import CuttableConnection, Messages

log = logging.getLogger(__name__)

MAX_BODY = 64 * 1024  # bytes; a text has at most 1,600 characters


@dataclass(frozen=True, slots=True)
class Address:
    """Where the sandbox listens; and, for its own tests, what runs behind it."""

    url: str
    sandbox: Sandbox
    work: asyncio.Task[None]


def create_app(sandbox: Sandbox) -> Litestar:
    return Litestar(
        [Messages, Phones, FaultSwitches, show_phones, page_file, health],
        dependencies={"sandbox": Provide(lambda: sandbox, sync_to_thread=False)},
        plugins=[ProblemDetailsPlugin(ProblemDetailsConfig(enable_for_all_http_exceptions=True))],
        after_exception=[note_bug],
        request_max_body_size=MAX_BODY,
        openapi_config=None,
        logging_config=None,
    )


async def note_bug(error: Exception, _: Scope) -> None:
    """Log an unexpected error, so that it is not taken for the fault created-500."""
    if not isinstance(error, HTTPException | TwilioError | BadFault):
        log.error("unexpected error", exc_info=error)


@contextlib.asynccontextmanager
async def serving(settings: Settings, listener: socket.socket) -> AsyncIterator[Address]:
    """Serve on a bound socket while the block runs."""
    sandbox = Sandbox(settings)
    names = (listener.getsockname()[0], *settings.allow_hosts)
    config = uvicorn.Config(
        LocalGuard(create_app(sandbox), names),
        http=CuttableConnection,
        lifespan="off",
        access_log=False,  # a list names phone numbers in its query
        log_config=None,
        date_header=False,
        timeout_graceful_shutdown=2,
    )
    config.load()
    # Started by hand instead of with `serve()`, which would take over the process's signals and wake ten times a second.
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup([listener])
    work = asyncio.create_task(sandbox.run())
    try:
        host, port = listener.getsockname()[:2]
        yield Address(f"http://{host}:{port}", sandbox, work)
    finally:
        sandbox.feed.close()  # first, or the shutdown would wait for browsers that listen
        await server.shutdown([listener])
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work  # raises if it had failed
        sandbox.close()


@contextlib.asynccontextmanager
async def running(
    data_dir: Path,
    *,
    pace: float = 0.01,
    auth_token: str | None = None,
    callback_retries: int = 1,
    inbound_url: str | None = None,
    allow_hosts: tuple[str, ...] = (),
) -> AsyncIterator[Address]:
    """A sandbox inside this event loop, on a free port of this machine: `async with running(tmp_path) as sms: sms.url`."""
    settings = Settings(data_dir, auth_token, pace, callback_retries, inbound_url, allow_hosts)
    async with serving(settings, bind("127.0.0.1", 0)) as address:
        yield address


def bind(host: str, port: int) -> socket.socket:
    # Named as TCP, or asyncio leaves Nagle's algorithm on and every answer waits 40 ms for the client's acknowledgement.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortInUse(host, port, os.strerror(error.errno or 0)) from error
    return listener


async def serve_until(stop: asyncio.Event, settings: Settings, listener: socket.socket) -> None:
    async with serving(settings, listener) as address:
        log.info("sms sandbox ready", extra={"url": address.url})
        if faults := sorted(address.sandbox.faults.active()):
            log.warning("faults are on", extra={"faults": faults, "clear": f"curl -X DELETE {address.url}/faults"})
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([stopping, address.work], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

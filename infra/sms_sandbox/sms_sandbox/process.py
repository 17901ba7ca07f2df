"""Runs a process: JSON log lines with phone numbers masked, and an orderly stop on SIGTERM or SIGINT."""

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

log = logging.getLogger(__name__)

_STOP_SECONDS: Final = 9.0
"""Stopping that takes longer is cancelled: most supervisors kill a process ten seconds after SIGTERM."""
_PHONE: Final = re.compile(r"(?:\+|%2B)[1-9](?:[ ()\-.]?\d){6,14}", re.IGNORECASE)
_NOT_FIELDS: Final = frozenset({*vars(logging.makeLogRecord({})), "color_message"})


class JsonLines(logging.Formatter):
    """One JSON object for each record: its message as `event`, then the fields that were passed as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"event": record.getMessage()}
        line |= {key: value for key, value in vars(record).items() if key not in _NOT_FIELDS}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        timestamp = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
        line |= {"process": "sms-sandbox", "severity": record.levelname, "timestamp": timestamp}
        return _PHONE.sub("[phone]", json.dumps(line, default=str))


def configure(level: str) -> None:
    """Log our own records from `level`. Other libraries describe their own work at DEBUG, so theirs begin at INFO."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=max(logging.getLevelName(level), logging.INFO), handlers=[handler], force=True)
    logging.getLogger(__package__).setLevel(level)
    for library in ("asyncio", "httpx", "uvicorn"):
        logging.getLogger(library).setLevel(logging.WARNING)


def run(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `main(stop)` until it returns. SIGTERM and SIGINT set `stop`. LOG_LEVEL in the environment defaults to INFO."""
    configure(os.environ.get("LOG_LEVEL", "INFO"))
    asyncio.run(_until_stopped(main))
    log.info("process stopped")


async def _until_stopped(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    working = asyncio.ensure_future(main(stop))

    def ask() -> None:
        stop.set()
        loop.call_later(_STOP_SECONDS, working.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    with suppress(asyncio.CancelledError):
        await working

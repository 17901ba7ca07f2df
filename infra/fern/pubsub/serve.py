"""`fern pubsub`: run the emulator alone, in the foreground."""

import asyncio
import json
import logging
import signal
import sys
import time
from pathlib import Path

import click

from fern.pubsub.errors import DataFolderError
from fern.pubsub.server import running

log = logging.getLogger(__name__)


@click.group()
def pubsub() -> None:
    """The durable Pub/Sub emulator."""


@pubsub.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=int, required=True, help="gRPC; what PUBSUB_EMULATOR_HOST names. 0 picks a free one.")
@click.option(
    "--http-port", type=int, default=0, show_default=True, help="Health, faults and keys. 0 picks a free one."
)
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), required=True, help="Made if missing.")
def serve(host: str, port: int, http_port: int, data_dir: Path) -> None:
    """Serve until SIGTERM or SIGINT. What was answered is on disk.

    Exits with 3 when another emulator uses the data folder, and with 4 when the folder is damaged.
    """
    _log_json_lines()
    # The writer thread needs the interpreter for microseconds at a time; do not let it wait the default 5 ms for its turn.
    sys.setswitchinterval(0.0005)
    try:
        asyncio.run(_serve(host, port, http_port, data_dir))
    except DataFolderError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        click.echo(f"cannot listen on {host}, ports {port} and {http_port}: {error}", err=True)
        sys.exit(1)


async def _serve(host: str, port: int, http_port: int, data_dir: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running(data_dir, port, http_port, host, grace=5) as emulator:
        backlog = sum(len(subscription.pending) for subscription in emulator.broker.subscriptions.values())
        log.info(
            "ready",
            extra={
                "grpc": emulator.target,
                "http": emulator.http_url,
                "data_dir": str(data_dir),
                "topics": len(emulator.broker.topics),
                "subscriptions": len(emulator.broker.subscriptions),
                "unacked": backlog,
            },
        )
        if emulator.broker.faults.active:
            log.warning("faults are on", extra={"faults": ", ".join(emulator.broker.faults.on)})
        await stop.wait()
        log.info("stopping")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        plain = logging.makeLogRecord({}).__dict__
        fields = {key: value for key, value in record.__dict__.items() if key not in plain and key != "message"}
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"timestamp": at, "level": record.levelname.lower(), "event": record.getMessage(), "logger": record.name}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line | fields, default=str)


def _log_json_lines() -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)

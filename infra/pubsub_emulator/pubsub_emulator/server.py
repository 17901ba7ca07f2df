"""The emulator as one object: store, broker, gRPC server and the HTTP side port.

`running` serves in the current event loop, `started` in a process of its own, which a test can kill.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio
from google.protobuf.message import DecodeError

from pubsub_emulator.broker import Broker
from pubsub_emulator.catalog import now
from pubsub_emulator.errors import DataFolderCorrupt, PortInUse
from pubsub_emulator.http_port import HttpPort, serving
from pubsub_emulator.local_guard import LocalGuard
from pubsub_emulator.publisher import Publisher
from pubsub_emulator.push import Pushers, Signer
from pubsub_emulator.store import Store
from pubsub_emulator.subscriber import Subscriber

HOUSEKEEPING_SECONDS: Final = 30.0
_OPTIONS: Final = [
    # Above the limit of a publish, so that too large a request gets the service's answer and not the transport's.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    # Clients ping idle streams to keep them alive. With its defaults, gRPC would close such connections.
    ("grpc.http2.max_ping_strikes", 0),
]


@dataclass(frozen=True, slots=True)
class Running:
    target: str
    """host:port, as PUBSUB_EMULATOR_HOST wants it."""
    http_url: str
    broker: Broker


@asynccontextmanager
async def running(
    data_dir: Path,
    port: int = 0,
    http_port: int = 0,
    host: str = "127.0.0.1",
    grace: float = 0,
    allow_hosts: Collection[str] = (),
    issuer: str | None = None,
) -> AsyncIterator[Running]:
    """Serve until the block is left. Port 0 picks a free one; `grace` is how long calls in flight may take at the end. The HTTP
    port answers to `host`, to the names of this machine and to `allow_hosts`. `issuer` is that of push tokens; without one, it is
    the URL of the HTTP port.
    """
    async with AsyncExitStack() as stack:
        store = Store(data_dir)
        stack.push_async_callback(store.close)
        broker = _load(store)
        signer = Signer(store)
        store.start()
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((Publisher(broker).handler(), Subscriber(broker).handler()))
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise PortInUse(host, port) from error
        stack.push_async_callback(server.stop, grace)
        # Streams would use up the whole grace, because they never end by themselves.
        stack.callback(broker.end_consumers)
        guarded = LocalGuard(HttpPort(broker, signer), names=(host, *allow_hosts))
        http_bound = await stack.enter_async_context(serving(guarded, host, http_port))
        signer.issuer = issuer or f"http://{host}:{http_bound}"
        stack.push_async_callback(Pushers(broker, signer).stop)
        housekeeping = asyncio.create_task(_keep_house(broker))
        stack.callback(housekeeping.cancel)
        await server.start()
        yield Running(f"{host}:{bound}", f"http://{host}:{http_bound}", broker)


def _load(store: Store) -> Broker:
    try:
        return Broker(store)
    except (sqlite3.DatabaseError, DecodeError, KeyError, TypeError, ValueError) as error:
        raise DataFolderCorrupt(f"{store.path} is damaged: {error!r}. {store.advice}") from error


async def _keep_house(broker: Broker) -> None:
    while True:
        await asyncio.sleep(HOUSEKEEPING_SECONDS)
        broker.expire(now())


@dataclass(frozen=True, slots=True)
class EmulatorProcess:
    target: str
    """host:port, as PUBSUB_EMULATOR_HOST wants it."""
    http_url: str
    _process: subprocess.Popen[str]

    def kill(self) -> None:
        """Kill the process as `kill -9` does: it finishes and flushes nothing."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Suspend the process: connections stay open, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


def command(data_dir: Path, port: int = 0, http_port: int = 0) -> list[str]:
    options = ["--port", str(port), "--http-port", str(http_port), "--data-dir", str(data_dir)]
    return [sys.executable, "-m", "pubsub_emulator", "serve", *options]


@contextmanager
def started(data_dir: Path, port: int = 0, http_port: int = 0) -> Iterator[EmulatorProcess]:
    """Yields when the process logs `ready`; terminates it, if it still runs, when the block is left."""
    process = subprocess.Popen(command(data_dir, port, http_port), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout  # noqa: S101
        for line in process.stdout:
            fields = json.loads(line)
            if fields["event"] == "ready":
                break
        else:
            raise RuntimeError(f"the emulator ended with exit code {process.wait()} before it was ready")
        yield EmulatorProcess(fields["grpc"], fields["http"], process)
    finally:
        process.terminate()
        process.communicate()

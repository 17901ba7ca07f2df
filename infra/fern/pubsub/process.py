"""The emulator as a process of its own, for those who want to kill it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    target: str
    """host:port, as PUBSUB_EMULATOR_HOST wants it."""
    http_url: str
    _process: subprocess.Popen[str]

    def kill(self) -> None:
        """As `kill -9` does: nothing is finished, nothing is tidied up."""
        self._process.kill()
        self._process.wait()


def command(data_dir: Path, port: int = 0, http_port: int = 0) -> list[str]:
    options = {"--port": port, "--http-port": http_port, "--data-dir": data_dir}
    return [sys.executable, "-m", "fern.pubsub", "serve", *(str(part) for option in options.items() for part in option)]


@contextmanager
def started(data_dir: Path, port: int = 0, http_port: int = 0) -> Iterator[Process]:
    """Yields when it says that it is ready; terminates it, if it still runs, when the block is left."""
    process = subprocess.Popen(command(data_dir, port, http_port), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout  # noqa: S101
        for line in process.stdout:
            fields = json.loads(line)
            if fields["event"] == "ready":
                break
        else:
            raise RuntimeError(f"the emulator ended with exit code {process.wait()} before it was ready")
        yield Process(fields["grpc"], fields["http"], process)
    finally:
        process.terminate()
        process.communicate()

"""Finds and runs Google's own emulator, if it is installed, so that ours can be compared with it.

It needs Java and the `pubsub-emulator` component of the Google Cloud SDK, but neither `gcloud` nor an account.
"""

import os
import random
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_COMMON_ROOTS: Final = (
    "/usr/lib/google-cloud-sdk",
    "/usr/share/google-cloud-sdk",
    "/opt/google-cloud-sdk",
    "/opt/homebrew/share/google-cloud-sdk",
    "/snap/google-cloud-cli/current",
    "~/google-cloud-sdk",
)
_START_SECONDS: Final = 240.0
_STOP_SECONDS: Final = 5.0


def find() -> Path | None:
    """The emulator's jar, the newest if there are several; None if it or Java is missing."""
    if _java() is None:
        return None
    for root in _roots():
        jars = sorted((root / "platform/pubsub-emulator/lib").glob("cloud-pubsub-emulator-*.jar"))
        if jars:
            return jars[-1]
    return None


@contextmanager
def running(jar: Path) -> Iterator[str]:
    """Run it on a free port until the block is left; yields host:port, as PUBSUB_EMULATOR_HOST wants it."""
    java = _java()
    if java is None:
        raise FileNotFoundError("Google's Pub/Sub emulator needs Java, and there is no java on the PATH: install Java")
    port = _free_port()
    process = subprocess.Popen(
        [java, "-Xmx512m", "-jar", str(jar), "--host=127.0.0.1", f"--port={port}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_healthy(process, port)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    """A port below the range of outgoing connections, one of which could take the port before Java has started."""
    for port in random.SystemRandom().sample(range(10_000, 32_000), 50):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no free port was found for Google's Pub/Sub emulator")


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"Google's Pub/Sub emulator ended at once, with exit code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise TimeoutError(f"Google's Pub/Sub emulator was not healthy after {_START_SECONDS:g} s")


def _roots() -> Iterator[Path]:
    if root := os.environ.get("CLOUDSDK_ROOT"):
        yield Path(root)
    if gcloud := shutil.which("gcloud"):
        yield Path(gcloud).resolve().parent.parent
    for place in _COMMON_ROOTS:
        yield Path(place).expanduser()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return (shutil.which("java", path=f"{home}/bin") if home else None) or shutil.which("java")

"""What must be true of this machine before anything starts. `fern doctor` shows every check; `fern up` fails with the first."""

import errno
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from fern.errors import DiskFull, HomeUnusable, PortTaken, PythonUnsupported, StaleProcess
from fern.runtime import postgres
from fern.runtime.supervisor import Supervisor
from fern.settings import PORTS, Settings

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)  # the newest that the embedded PostgreSQL has a wheel for


def check_python() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    if not OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        what = f"{sys.executable} is Python {version}. Python 3.11 to 3.14 are supported."
        raise PythonUnsupported(what, command="rm -rf .venv && make up PYTHON=/path/to/python3.14")
    return f"{version} ({sys.executable})"


def check_home(settings: Settings) -> str:
    """Writes a file and deletes it, without creating the folder: `doctor` changes nothing."""
    folder = _existing(settings.home)
    try:
        with tempfile.TemporaryFile(dir=folder):
            return f"{settings.home} can be written to"
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(settings.home, free_bytes(settings.home)) from None
        what = f"FERN_HOME is {settings.home}, and nothing can be written to {folder}: {os.strerror(error.errno or 0)}."
        raise HomeUnusable(what, command='FERN_HOME="$HOME/.fern" make up') from None


def check_disk(settings: Settings) -> str:
    if (free := free_bytes(settings.home)) < postgres.ROOM_NEEDED:
        raise DiskFull(settings.home, free)
    return f"{free / 2**30:.1f} GB free at {settings.home}"


def check_embedded_postgres() -> str:
    return f"PostgreSQL {postgres.MAJOR} at {postgres.binary('postgres').parent}"


def check_stale_processes(settings: Settings, supervisor: Supervisor) -> str:
    if supervisor.is_running():
        return "none (the system is running)"
    if orphans := list(orphaned_processes(settings)):
        names = ", ".join(f"{name} (pid {process.pid})" for name, process in orphans)
        what = f"processes of an earlier run are left without their supervisor: {names}."
        raise StaleProcess(what, command="fern down")
    return "none"


def check_ports(settings: Settings, supervisor: Supervisor) -> str:
    """Checks nothing while the system runs, because its own processes have the ports."""
    first, last = settings.port_base, settings.port_base + max(PORTS.values())
    if supervisor.is_running():
        return f"{first} to {last} are used by the running system"
    for name in PORTS:
        if _is_taken(port := settings.port(name)):
            what = f"port {port}, needed by {name}, is taken by {holder_of(port)}."
            raise PortTaken(what, command=f"FERN_PORT_BASE={settings.port_base + 1000} make up")
    return f"{first} to {last} are free"


def free_bytes(path: Path) -> int:
    return shutil.disk_usage(_existing(path)).free


def _existing(path: Path) -> Path:
    """The folder itself, or the closest one above it that exists."""
    return next(folder for folder in (path, *path.parents) if os.path.lexists(folder))


def holder_of(port: int) -> str:
    for process in psutil.process_iter(["name", "net_connections"]):
        for connection in process.info["net_connections"] or ():
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                return f"{process.info['name']} (pid {process.pid})"
    return "a process of another user"


def orphaned_processes(settings: Settings) -> Iterator[tuple[str, psutil.Process]]:
    """Our processes whose supervisor has ended. Call it only while no supervisor runs.

    They are recognised by their environment; PostgreSQL, which overwrites its own, by the pid file in its data directory.
    """
    for process in psutil.process_iter(["environ"]):
        environment = process.info["environ"] or {}
        name = environment.get("FERN_PROCESS", "postgres")
        if environment.get("FERN_HOME") == str(settings.home) and name != "postgres":
            yield name, process
    try:
        process = psutil.Process(int((settings.postgres_data / "postmaster.pid").read_text().split("\n")[0]))
        if str(settings.postgres_data) in process.cmdline():
            yield "postgres", process
    except (OSError, ValueError, psutil.Error):
        return


def _is_taken(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        if client.connect_ex(("127.0.0.1", port)) == 0:
            return True
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free to listen on
        try:
            server.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False

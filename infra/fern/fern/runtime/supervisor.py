"""Keeps the processes running: configures supervisord, the daemon of the `supervisor` library, and calls it over XML-RPC.

supervisord restarts a process that ends, as Docker restarts a container, and rotates the logs. It starts none by itself: `fern
up` starts stage after stage. The pause before the restart of a process that keeps failing grows by a second each time.
"""

import http.client
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fern.errors import NeverHealthy, StaleProcess
from fern.runtime.processes import Process
from fern.settings import PROJECT_ROOT, Settings

ANSWER_TIMEOUT = 5.0
MEGABYTE = 2**20


@dataclass(frozen=True)
class ProcessState:
    name: str
    state: str  # RUNNING, STARTING, BACKOFF, STOPPING, STOPPED, EXITED, FATAL
    pid: int
    started_at: float
    restarts: int

    @property
    def is_up(self) -> bool:
        return self.state in ("RUNNING", "STARTING", "BACKOFF")


class Supervisor:
    def __init__(self, settings: Settings, processes: Sequence[Process]) -> None:
        self._settings = settings
        self._processes = processes
        self._config = settings.home / "supervisord.conf"
        self._log = settings.home / "supervisord.log"
        self._pid_file = settings.home / "supervisord.pid"
        transport = _UnixTransport(settings.supervisor_socket)
        self._rpc = xmlrpc.client.ServerProxy("http://fern", transport=transport).supervisor

    def config(self) -> str:
        s = self._settings
        sections: dict[str, dict[str, object]] = {
            "unix_http_server": {"file": s.supervisor_socket, "chmod": "0700"},
            "supervisord": {
                "logfile": self._log,
                "logfile_maxbytes": 5 * MEGABYTE,
                "logfile_backups": 1,
                "pidfile": self._pid_file,
                "directory": PROJECT_ROOT,
                "childlogdir": s.logs,
                "environment": _environment(s.environment("supervisord")),
                **({"user": "root"} if os.geteuid() == 0 else {}),  # without it, supervisord warns at every start
            },
            "rpcinterface:supervisor": {
                "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
            },
            **{f"program:{process.name}": self._program(process) for process in self._processes},
        }
        return "\n".join(
            f"[{section}]\n" + "".join(f"{key} = {_escape(str(value))}\n" for key, value in entries.items())
            for section, entries in sections.items()
        )

    def _program(self, process: Process) -> dict[str, object]:
        environment = {"FERN_PROCESS": process.name, **process.environment}
        if process.stage == "service":
            environment["FERN_CRASH_AT"] = f"@{self._settings.crash_file(process.name)}"
            environment["HEARTBEAT_FILE"] = str(self._settings.heartbeat(process.name))
            environment["MONITOR_PORT"] = "0"  # any free port; the heartbeat file has its number
        return {
            "command": shlex.join(process.command),
            "environment": _environment(environment),
            "autostart": "false",
            "autorestart": "true",
            "startretries": 100,
            "stopsignal": process.stop_signal,
            "stopwaitsecs": 12,
            "redirect_stderr": "true",
            "stdout_logfile": self._settings.log(process.name),
            "stdout_logfile_maxbytes": 10 * MEGABYTE,
            "stdout_logfile_backups": 2,
            **({"user": process.user} if process.user else {}),
        }

    def is_running(self) -> bool:
        """Whether the daemon answers. Raises `StaleProcess` for one that exists and does not answer."""
        try:
            self._rpc.getState()
            return True
        except (FileNotFoundError, ConnectionRefusedError):
            if not (daemon := self.daemon()):
                return False
            what = f"the supervisor of an earlier run (pid {daemon.pid}) has lost its socket."
        except TimeoutError:
            what = f"the supervisor of an earlier run (pid {self._pid()}) has not answered for {ANSWER_TIMEOUT:.0f} s."
        raise StaleProcess(what, command="fern down")

    def is_current(self) -> bool:
        """Whether the running daemon was started with these settings."""
        return self._config.exists() and self._config.read_text() == self.config()

    def start_daemon(self, timeout: float = 60.0) -> None:
        for directory in (self._settings.home, self._settings.logs, self._settings.home / "heartbeats"):
            directory.mkdir(parents=True, exist_ok=True)
        self._log.unlink(missing_ok=True)  # restarts are counted in it, from here on
        self._config.write_text(self.config())
        command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(self._config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=PROJECT_ROOT)
        deadline = time.monotonic() + timeout
        while done.returncode == 0 and time.monotonic() < deadline:
            try:
                self._rpc.getState()
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
            else:
                return
        raise NeverHealthy("the supervisor did not start.", details=done.stderr.strip() or tail(self._log))

    def reload(self) -> None:
        """Give the running daemon this configuration: add new processes, and remove old ones after a graceful stop. A changed
        process is stopped, to be started again.
        """
        self._config.write_text(self.config())
        answer: Any = self._rpc.reloadConfig()
        [(added, changed, removed)] = answer
        self.stop([*removed, *changed])
        for name in (*removed, *changed):
            self._rpc.removeProcessGroup(name)
        for name in (*changed, *added):
            self._rpc.addProcessGroup(name)

    def start(self, name: str) -> None:
        self._rpc.startProcess(name, False)

    def hold(self, name: str) -> None:
        """Kill a process (SIGKILL) and do not restart it. supervisord is told first, so that it expects the end."""
        pid = self.states()[name].pid
        self._rpc.stopProcess(name, False)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def states(self) -> dict[str, ProcessState]:
        infos: Any = self._rpc.getAllProcessInfo()
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        return {
            info["name"]: ProcessState(
                name=info["name"],
                state=info["statename"],
                pid=info["pid"],
                started_at=float(info["start"]),
                restarts=max(0, log.count(f"spawned: '{info['name']}' with pid") - 1),
            )
            for info in infos
        }

    def stop(self, names: Sequence[str], timeout: float = 60.0) -> None:
        """Stop these processes at the same time, and wait. supervisord kills a process that ignores its signal for 12 s."""
        for name in names:
            if self.states()[name].is_up:
                self._rpc.stopProcess(name, False)
        deadline = time.monotonic() + timeout
        while any(self.states()[name].pid for name in names) and time.monotonic() < deadline:
            time.sleep(0.05)

    def shut_down(self, timeout: float = 60.0) -> None:
        daemon = self.daemon()
        self._rpc.shutdown()
        if daemon:
            daemon.wait(timeout)

    def daemon(self) -> psutil.Process | None:
        """The daemon of this home, if it is running. Its command line is compared, against a reused pid."""
        try:
            process = psutil.Process(self._pid())
            return process if str(self._config) in process.cmdline() else None
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None

    def _pid(self) -> int:
        try:
            return int(self._pid_file.read_text())
        except (OSError, ValueError):
            return 0


def tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log yet)"


class _UnixTransport(xmlrpc.client.Transport):
    """XML-RPC over a unix socket, with a timeout."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        path = self._path

        class UnixConnection(http.client.HTTPConnection):
            def connect(self) -> None:
                self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self.sock.settimeout(ANSWER_TIMEOUT)
                self.sock.connect(str(path))

        return UnixConnection("fern")


def _environment(variables: dict[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in variables.items())


def _escape(value: str) -> str:
    return value.replace("%", "%%")

"""Starts and stops the system without Docker: console and PostgreSQL, bus and SMS sandbox, one-shot jobs, then services."""

import asyncio
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil

from fern.output import Progress, make_console
from fern.runtime import postgres
from fern.runtime.checks import check_disk, check_home, check_ports, check_stale_processes, orphaned_processes
from fern.runtime.health import wait_until_healthy
from fern.runtime.jobs import jobs, run_job
from fern.runtime.processes import STAGES, Process, Stage, console, processes
from fern.runtime.supervisor import Supervisor
from fern.settings import Settings

STAGE_TIMEOUT = 240.0
STOP_TIMEOUT = 12.0


class EmbeddedRuntime:
    def __init__(self, settings: Settings, progress: Progress | None = None, *, only_console: bool = False) -> None:
        """`only_console` is for Docker mode: the console runs on the host, to be able to kill containers."""
        self._settings = settings
        self._progress = progress or Progress(make_console())
        self.processes = [console(settings)] if only_console else processes(settings)
        self.supervisor = Supervisor(settings, self.processes)

    def up(self) -> None:
        """Start what is not running. A system that runs with other settings is stopped first."""
        if self.supervisor.is_running() and not self.supervisor.is_current():
            self.down()
        check_home(self._settings)
        check_disk(self._settings)
        check_stale_processes(self._settings, self.supervisor)
        check_ports(self._settings, self.supervisor)
        self._settings.remember("embedded")
        if not (self._settings.postgres_data / "PG_VERSION").exists():
            with self._progress.step("postgres: new cluster"):
                postgres.initialise(self._settings.postgres_data)
        postgres.initialise(self._settings.postgres_data)  # refuses the data of another major version
        self._start("console", "database")
        self._start("backing")
        self._prepare()
        self._start("service")

    def adjust(self) -> None:
        """Start and stop services of a running system, after a change of the number of replicas or of the delivery."""
        self.supervisor.reload()
        self._start("service")

    def up_console(self) -> None:
        self._start("console")

    def down(self) -> None:
        """Stop all processes, also those that another mode or version started under our supervisor."""
        if self.supervisor.daemon() is not None and self._answers():
            known = self.supervisor.states().keys()
            for stage in reversed(STAGES):
                if names := [process.name for process in self._of(stage) if process.name in known]:
                    with self._progress.step(f"stop {stage} processes"):
                        self.supervisor.stop(names)
            with self._progress.step("stop supervisor"):
                self.supervisor.shut_down()
        else:
            self._end_what_is_left()
            self._settings.supervisor_socket.unlink(missing_ok=True)  # a killed supervisor leaves its socket
        self._settings.forget()

    def _of(self, *stages: Stage) -> list[Process]:
        return [process for process in self.processes if process.stage in stages]

    def _start(self, *stages: Stage) -> None:
        started = time.monotonic()
        if not self.supervisor.is_running():
            with self._progress.step("supervisor"):
                self.supervisor.start_daemon()
        states = self.supervisor.states()
        self.supervisor.stop([process.name for process in self._of(*stages) if process.idle])
        wanted = [process for process in self._of(*stages) if not process.idle]
        for process in wanted:
            if not states[process.name].is_up:
                self.supervisor.start(process.name)
        with self._progress.waiting(f"waiting for {' and '.join(stages)} processes"):
            wait_until_healthy(
                self.supervisor,
                wanted,
                self._settings,
                STAGE_TIMEOUT,
                on_healthy=lambda process: self._progress.done(process.name, started),
            )

    def _prepare(self) -> None:
        """Create the databases, then run all jobs at the same time."""
        with self._progress.step("databases and roles"):
            asyncio.run(postgres.ensure_service_databases(self._settings.postgres.dsn()))
        started = time.monotonic()

        def run(title: str, command: list[str]) -> None:
            run_job(title, command, self._settings.environment(title.replace(" ", "-")))
            self._progress.done(title, started)

        work = jobs()
        with self._progress.waiting("migrations and topology"), ThreadPoolExecutor(len(work)) as pool:
            for outcome in [pool.submit(run, title, command) for title, command in work.items()]:
                outcome.result()

    def _answers(self) -> bool:
        with suppress(OSError):
            return bool(self.supervisor.states())
        return False

    def _end_what_is_left(self) -> None:
        """Kill a supervisor that hangs, and the processes of one that has ended: first the supervisor, so that it restarts none,
        last PostgreSQL.
        """
        left = list(orphaned_processes(self._settings))
        if (daemon := self.supervisor.daemon()) is not None:
            with self._progress.step(f"end supervisor (pid {daemon.pid})"):
                _end([daemon], signal.SIGKILL)
        for names, group, with_signal in (
            ("processes", [process for name, process in left if name != "postgres"], signal.SIGTERM),
            ("postgres", [process for name, process in left if name == "postgres"], signal.SIGINT),
        ):
            if group:
                pids = ", ".join(str(process.pid) for process in group)
                with self._progress.step(f"end {names} of an earlier run (pid {pids})"):
                    _end(group, with_signal)


def _end(processes: list[psutil.Process], with_signal: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(with_signal)
    _, alive = psutil.wait_procs(processes, STOP_TIMEOUT)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, STOP_TIMEOUT)

"""`fern down`, `reset`, `status`, `logs`, `kill`: the daily handling, the same in both modes."""

import json
import os
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.table import Table

from fern.errors import FernError, NeverHealthy, NotRunning
from fern.runtime import docker, health
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.processes import processes
from fern.runtime.progress import Progress, make_console
from fern.settings import Settings

# All that a run leaves in its home; `reset` deletes nothing where it finds anything else.
OURS = ("heartbeats", "logs", "postgres", "pubsub", "running.json", "sms", "supervisor")
FOLLOW_INTERVAL = 0.2


@click.command()
def down() -> None:
    """Stop everything, gracefully; data stays."""
    _down(Settings.load(), delete_data=False)
    click.echo("everything is down; the data is kept")


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(yes: bool) -> None:
    """Stop everything and delete all data and logs."""
    settings = Settings.load()
    if not yes:
        click.confirm(f"Delete everything in {settings.home} and start over?", abort=True)
    found = [path.name for path in settings.home.iterdir()] if settings.home.exists() else []
    if foreign := [name for name in found if not name.startswith(OURS)]:
        raise FernError(
            f"{settings.home} has things in it that are not ours ({', '.join(sorted(foreign)[:3])}); nothing was deleted.",
            command=f"ls {settings.home}",
        )
    _down(settings, delete_data=True)
    if settings.home.exists():
        shutil.rmtree(settings.home)
    click.echo("everything is down and deleted; `make up` starts over")


def _down(settings: Settings, *, delete_data: bool) -> None:
    if settings.mode == "docker":
        docker.down(settings, delete_data=delete_data)
        settings.forget()
    EmbeddedRuntime(settings, Progress(make_console())).down()


@dataclass(frozen=True)
class Row:
    process: str
    state: str
    pid: int | None
    uptime_seconds: int | None
    restarts: int | None
    health: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(as_json: bool) -> None:
    """Show every process: state, pid, uptime, restarts, health.

    Exit code 0 if all are healthy, 15 if one is not, 19 if nothing runs.
    """
    settings = Settings.load()
    rows = processes_now(settings)
    if as_json:
        click.echo(json.dumps({"mode": settings.mode, "items": [asdict(row) for row in rows]}, indent=2))
    elif rows:
        _print_rows(rows)
    if not rows:
        if not as_json:
            click.echo("nothing is running; start it: make up")
        sys.exit(NotRunning.exit_code)
    sys.exit(0 if all(row.health == "healthy" for row in rows) else NeverHealthy.exit_code)


def processes_now(settings: Settings) -> list[Row]:
    """None if nothing runs. With Docker, the console still runs beside the containers."""
    in_docker = settings.mode == "docker"
    return _host_rows(settings, only_console=in_docker) + (_docker_rows(settings) if in_docker else [])


def _host_rows(settings: Settings, *, only_console: bool) -> list[Row]:
    runtime = EmbeddedRuntime(settings, Progress(make_console()), only_console=only_console)
    if not runtime.supervisor.is_running():
        return []
    states = runtime.supervisor.states()
    return [
        Row(
            process=process.name,
            state=(state := states[process.name]).state.lower(),
            pid=state.pid or None,
            uptime_seconds=int(time.time() - state.started_at) if state.pid else None,
            restarts=state.restarts,
            health=health.problem(process, state, settings) or "healthy",
        )
        for process in runtime.processes
    ]


def _docker_rows(settings: Settings) -> list[Row]:
    """An engine tells neither pid nor restarts in its listing; a one-shot job that went well counts as healthy."""
    long_running = {process.name for process in processes(settings)}
    return [
        Row(
            process=container["Service"],
            state=container["State"],
            pid=None,
            uptime_seconds=None,
            restarts=None,
            health="healthy"
            if container["Service"] not in long_running
            and container["State"] == "exited"
            and container["ExitCode"] == 0
            else container["Health"] or container["State"],
        )
        for container in docker.containers(settings)
    ]


def _print_rows(rows: list[Row]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("process", "state", "pid", "uptime", "restarts", "health"):
        table.add_column(
            column, no_wrap=column != "health", justify="right" if column in ("pid", "uptime", "restarts") else "left"
        )
    for row in rows:
        colour = "green" if row.health == "healthy" else "red"
        uptime = "" if row.uptime_seconds is None else _duration(row.uptime_seconds)
        pid, restarts = ("" if number is None else str(number) for number in (row.pid, row.restarts))
        table.add_row(row.process, row.state, pid, uptime, restarts, f"[{colour}]{row.health}[/]")
    make_console().print(table)


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


@click.command()
@click.argument("process", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on as new lines come.")
@click.option("-n", "--lines", default=20, show_default=True, help="How many lines from the end.")
def logs(process: str | None, follow: bool, lines: int) -> None:
    """Show the logs of one process, or of all."""
    settings = Settings.load()
    if settings.mode == "docker":
        docker.logs(settings, process, lines, follow=follow)
        return
    names = [process] if process else [p.name for p in processes(settings)]
    files: dict[str, Path] = {name: settings.log(name) for name in names if settings.log(name).exists()}
    if not files:
        raise FernError(f"there is no log of {process or 'anything'} yet.", command="fern status")
    positions = print_logs(files, lines)
    if follow:
        follow_logs(files, positions)


def print_logs(files: dict[str, Path], lines: int) -> dict[str, int]:
    """The end of each file. Returns how far each was read."""
    positions = {}
    for name, path in files.items():
        content = path.read_bytes()
        positions[name] = len(content)
        for line in content.decode(errors="replace").splitlines()[-lines:]:
            _print_line(name, line, alone=len(files) == 1)
    return positions


def follow_logs(files: dict[str, Path], positions: dict[str, int]) -> None:
    """Until interrupted. A file that became shorter was rotated and is read from its beginning."""
    while True:
        for name, path in files.items():
            size = path.stat().st_size if path.exists() else 0
            start = positions[name] if size >= positions[name] else 0
            if size > start:
                with path.open("rb") as file:
                    file.seek(start)
                    chunk = file.read()
                whole_lines = chunk[: chunk.rfind(b"\n") + 1]  # the rest of a line comes with the next look
                for line in whole_lines.decode(errors="replace").splitlines():
                    _print_line(name, line, alone=len(files) == 1)
                positions[name] = start + len(whole_lines)
            else:
                positions[name] = start
        time.sleep(FOLLOW_INTERVAL)


def _print_line(name: str, line: str, *, alone: bool) -> None:
    click.echo(line if alone else click.style(f"{name:<24}", fg="cyan") + line)


@click.command()
@click.argument("process")
def kill(process: str) -> None:
    """Kill a process the hard way (SIGKILL), to see the system survive it."""
    click.echo(kill_process(Settings.load(), process))


def kill_process(settings: Settings, name: str) -> str:
    """What was done, in words."""
    if settings.mode == "docker" and name != "console":
        docker.kill(settings, name)
        return f"killed {name}; the engine has started it again"
    runtime = EmbeddedRuntime(settings, Progress(make_console()))
    if not runtime.supervisor.is_running():
        raise NotRunning("nothing is running.", command="make up")
    state = runtime.supervisor.states().get(name)
    if state is None or not state.pid:
        names = ", ".join(p.name for p in runtime.processes)
        raise FernError(f"there is no running process {name}; there are {names}.", command="fern status")
    os.kill(state.pid, signal.SIGKILL)
    return f"killed {name} (pid {state.pid}); the supervisor starts it again"

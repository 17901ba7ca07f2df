"""`fern doctor`: every check of this machine, each with what was found or what to do."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import click

from fern.errors import DockerSilent, DockerUnusable, FernError
from fern.output import json_option, make_console, print_json
from fern.runtime import checks
from fern.runtime.engine import EMBEDDED, find_engine, require_engine
from fern.runtime.processes import processes
from fern.runtime.supervisor import Supervisor
from fern.settings import Settings
from pubsub_emulator import google


@dataclass(frozen=True)
class CheckResult:
    check: str
    ok: bool
    message: str
    command: str | None = None
    exit_code: int = 0


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Look for problems that would keep the system from starting.

    The exit code is that of the first problem found: 10 port taken, 11 Docker silent, 12 Python too old, 13 disk full,
    14 stale process, 16 Docker too old, or stopped while the system runs in it, 17 embedded PostgreSQL unusable, 35 FERN_HOME not
    writable; 0 if there is none.
    """
    results = [_examine(name, check) for name, check in _checks(Settings.load()).items()]
    if as_json:
        print_json({"items": [asdict(result) for result in results]})
    else:
        _print(results)
    sys.exit(next((result.exit_code for result in results if not result.ok), 0))


def _checks(settings: Settings) -> dict[str, Callable[[], str]]:
    checks_of_both = {
        "python": checks.check_python,
        "home": lambda: checks.check_home(settings),
        "disk": lambda: checks.check_disk(settings),
        "docker": lambda: _check_docker(settings),
        "embedded postgres": checks.check_embedded_postgres,
        "google's pubsub emulator": lambda: str(google.find() or "none, not needed"),
    }
    if settings.mode == "docker":
        return checks_of_both
    supervisor = Supervisor(settings, processes(settings))
    return checks_of_both | {
        "stale processes": lambda: checks.check_stale_processes(settings, supervisor),
        "ports": lambda: checks.check_ports(settings, supervisor),
    }


def _examine(name: str, check: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(name, True, check())
    except FernError as error:
        return CheckResult(name, False, error.message, error.command, error.exit_code)


def _check_docker(settings: Settings) -> str:
    """A missing engine is no problem, because the embedded runtime needs none, unless the system was started in Docker. An engine
    that hangs or is too old is a problem: `fern up` would choose it.
    """
    engine = find_engine()
    if settings.mode == "docker" and engine.state in ("missing", "silent"):
        kind = DockerSilent if engine.state == "silent" else DockerUnusable
        what = f"the system was started in Docker, and its engine cannot be used: {engine.detail}."
        raise kind(f"{what} Start the engine, or run without it.", command=EMBEDDED)
    if engine.state == "missing":
        return f"none, not needed ({engine.detail})"
    require_engine(engine)
    return engine.detail


def _print(results: list[CheckResult]) -> None:
    console = make_console()
    for result in results:
        mark = "[green]✓[/]" if result.ok else "[red]✗[/]"
        console.print(f"{mark} {result.check:<25} {result.message}", soft_wrap=True)
        if result.command:
            console.print(f"  {'try:':<25} [bold]{result.command}[/]", soft_wrap=True)

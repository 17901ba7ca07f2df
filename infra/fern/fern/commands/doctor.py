"""`fern doctor`: every check there is, each with what was found or what to do."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from fern.errors import DockerSilent, FernError
from fern.runtime import checks, docker
from fern.runtime.processes import processes
from fern.runtime.progress import make_console
from fern.runtime.supervisor import Supervisor
from fern.settings import Settings


@dataclass(frozen=True)
class Finding:
    check: str
    ok: bool
    message: str
    command: str | None
    exit_code: int


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(as_json: bool) -> None:
    """Look for what would keep the system from starting.

    The exit code is that of the first problem found: 10 port taken, 11 Docker silent, 12 Python too old, 13 disk full,
    14 stale process, 17 embedded PostgreSQL unusable; 0 if there is none.
    """
    settings = Settings.load()
    findings = [_examine(name, check) for name, check in _checks(settings).items()]
    if as_json:
        click.echo(json.dumps({"items": [asdict(finding) for finding in findings]}, indent=2))
    else:
        _print(findings)
    sys.exit(next((finding.exit_code for finding in findings if not finding.ok), 0))


def _checks(settings: Settings) -> dict[str, Callable[[], str]]:
    checks_of_both = {
        "python": checks.check_python,
        "disk": lambda: checks.check_disk(settings),
        "docker": _check_docker,
        "embedded postgres": checks.check_embedded_postgres,
        "google's pubsub emulator": _find_google_emulator,
    }
    if settings.mode == "docker":
        return checks_of_both
    supervisor = Supervisor(settings, processes(settings))
    return checks_of_both | {
        "stale processes": lambda: checks.check_stale_processes(settings, supervisor),
        "ports": lambda: checks.check_ports(settings, supervisor),
    }


def _examine(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, ok=True, message=check(), command=None, exit_code=0)
    except FernError as error:
        return Finding(name, ok=False, message=error.message, command=error.command, exit_code=error.exit_code)


def _check_docker() -> str:
    """No engine is fine, there is the embedded runtime; one that hangs is not."""
    engine = docker.find_engine()
    if engine.state == "silent":
        raise DockerSilent(f"{engine.detail}.", command="fern up --embedded")
    return engine.detail if engine.state == "answering" else f"none, not needed ({engine.detail})"


def _find_google_emulator() -> str:
    """Only to compare behaviours with; the embedded runtime brings its own."""
    candidates = [
        Path(os.environ.get("CLOUDSDK_ROOT", "/usr/lib/google-cloud-sdk")),
        *(Path(gcloud).resolve().parents[1] for gcloud in [shutil.which("gcloud")] if gcloud),
    ]
    for root in candidates:
        if (emulator := root / "platform" / "pubsub-emulator" / "bin" / "cloud-pubsub-emulator").exists():
            return str(emulator)
    return "none, not needed"


def _print(findings: list[Finding]) -> None:
    console = make_console()
    for finding in findings:
        mark = "[green]✓[/]" if finding.ok else "[red]✗[/]"
        console.print(f"{mark} {finding.check:<25} {finding.message}", soft_wrap=True)
        if finding.command:
            console.print(f"  {'try:':<25} [bold]{finding.command}[/]", soft_wrap=True)

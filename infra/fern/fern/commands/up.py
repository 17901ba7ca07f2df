"""`fern up`: from nothing to a healthy system, safe to repeat."""

import errno
import time

import click
import httpx
from rich.console import Console

from fern.errors import DiskFull, JobFailed
from fern.runtime import docker
from fern.runtime.checks import check_ports, check_python, free_bytes
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.progress import Progress, make_console
from fern.seed import seed
from fern.settings import Mode, Settings


@click.command()
@click.option("--embedded", "mode", flag_value="embedded", help="Run without Docker, even if there is one.")
@click.option("--docker", "mode", flag_value="docker", help="Run in Docker, or say why not.")
def up(mode: Mode | None) -> None:
    """Start everything and wait until it is healthy.

    Runs in Docker where an engine answers, and otherwise as plain processes with an embedded PostgreSQL.
    """
    settings = Settings.load()
    progress = Progress(make_console())
    started = time.monotonic()
    check_python()
    try:
        if _decide(mode, settings) == "docker":
            _up_in_docker(settings, progress)
        else:
            _up_embedded(settings, progress)
        with progress.step("demo data"):
            _seed(settings)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(settings.home, free_bytes(settings.home)) from error
        raise
    _say_where_it_is(settings, progress.console, time.monotonic() - started)


def _decide(asked: Mode | None, settings: Settings) -> Mode:
    """As asked; else as it runs already; else Docker where an engine answers. A silent engine is never waited for."""
    if asked == "embedded" or (asked is None and settings.mode == "embedded"):
        return "embedded"
    engine = docker.find_engine()
    if asked is None and engine.state == "missing":
        return "embedded"
    docker.require_engine(engine)
    return "docker"


def _up_embedded(settings: Settings, progress: Progress) -> None:
    if settings.mode == "docker" and docker.find_engine().state == "answering":  # both want the same ports
        docker.down(settings, delete_data=False)
    EmbeddedRuntime(settings, progress).up()


def _up_in_docker(settings: Settings, progress: Progress) -> None:
    everything = EmbeddedRuntime(settings, progress)
    console = EmbeddedRuntime(settings, progress, only_console=True)
    if console.supervisor.is_running() and not console.supervisor.is_current():
        everything.down()
    if settings.mode is None:
        check_ports(settings, everything.supervisor)
    settings.remember("docker")
    console.up_console()
    docker.up(settings)


def _seed(settings: Settings) -> None:
    try:
        seed(settings)
    except (httpx.HTTPError, KeyError) as error:
        raise JobFailed(f"the demo data could not be written: {error}", command="fern logs labour-api") from error


def _say_where_it_is(settings: Settings, console: Console, seconds: float) -> None:
    pages = {
        "the console": settings.url("console"),
        "Labour API": settings.url("labour-api") + "/schema",
        "Notification API": settings.url("notification-api") + "/schema",
        "the phones": settings.url("sms-sandbox"),
    }
    console.print(f"\n[bold]FernLabour is up[/] ({settings.mode}, {seconds:.1f} s)")
    for name, url in pages.items():
        console.print(f"  {name:<17} {url}")
    console.print("\nOpen the console, or watch one labour reach two phones here:  [bold]make demo[/]")

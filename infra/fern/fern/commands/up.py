"""`fern up`: from nothing to a healthy system. Safe to repeat."""

import errno
import time

import click
from rich.console import Console

from fern.client import call
from fern.errors import DiskFull, FernError, JobFailed
from fern.output import Progress, make_console
from fern.runtime import docker
from fern.runtime.checks import check_ports, check_python, free_bytes
from fern.runtime.embedded import EmbeddedRuntime
from fern.settings import MOTHER, Mode, Settings

# Numbers reserved for fiction, which no phone has.
FIRST_SUBSCRIBERS = {"Grace": "+12025550111", "Alan": "+12025550122"}


@click.command()
@click.option("--embedded", "mode", flag_value="embedded", help="Run without Docker, even if an engine is running.")
@click.option("--docker", "mode", flag_value="docker", help="Run in Docker, and fail if no engine is running.")
def up(mode: Mode | None) -> None:
    """Start everything and wait until it is healthy.

    Uses Docker if an engine is running; otherwise starts plain processes with an embedded PostgreSQL and Pub/Sub emulator.
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
    _print_addresses(settings, progress.console, time.monotonic() - started)


def _decide(asked: Mode | None, settings: Settings) -> Mode:
    """As asked; else as it runs already; else Docker if an engine is running. Takes a few seconds if an engine hangs."""
    if asked == "embedded" or (asked is None and settings.mode == "embedded"):
        return "embedded"
    engine = docker.find_engine()
    if asked is None and engine.state == "missing":
        return "embedded"
    docker.require_engine(engine)
    return "docker"


def _up_embedded(settings: Settings, progress: Progress) -> None:
    if settings.mode == "docker" and docker.find_engine().state == "answering":  # both need the same ports
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
    """Plan a first labour with two subscribers, unless the mother has one, so that the pages are not empty."""
    path = "/api/v1/labours"
    try:
        if call("labour", "GET", path, user=MOTHER, params={"limit": 1}, settings=settings)["items"]:
            return
        plan = {"mother_name": "Ada"}
        labour = call("labour", "POST", path, user=MOTHER, key="seed", json=plan, settings=settings)
        path = f"{path}/{labour['id']}/subscribers"
        for name, phone in FIRST_SUBSCRIBERS.items():
            person = {"name": name, "phone": phone}
            call("labour", "POST", path, user=MOTHER, key=f"seed-{name}", json=person, settings=settings)
    except FernError as error:
        what = f"the demo data could not be written: {error.message}"
        raise JobFailed(what, details=error.details, command="fern logs labour-api") from error


def _print_addresses(settings: Settings, console: Console, seconds: float) -> None:
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

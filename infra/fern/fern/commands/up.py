"""`fern up`: starts the system and waits until it is healthy. Safe to repeat."""

import errno
import time

import click
from rich.console import Console

from fern.client import call
from fern.errors import DiskFull, FernError, JobFailed
from fern.observability import UID as DASHBOARD
from fern.output import Progress, make_console
from fern.overrides import Overrides
from fern.runtime import docker
from fern.runtime.checks import check_home, check_ports, check_python, free_bytes
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.engine import find_engine, require_engine
from fern.runtime.system import processes_now
from fern.settings import MOTHER, PROJECT_ROOT, Bus, Mode, Settings

# A change of one of these may need a migration or a topic, so `up` does all its steps again.
SOURCES = ("services/**/*.py", "shared/**/*.py", "infra/*.toml")
WITHOUT_GRAFANA = "--observe runs Grafana in Docker; without it, the console shows traces and metrics."
# Numbers reserved for fiction, which no phone has.
FIRST_SUBSCRIBERS = {"Grace": "+12025550111", "Alan": "+12025550122"}


@click.command()
@click.option("--embedded", "mode", flag_value="embedded", help="Run without Docker, even if an engine is running.")
@click.option("--docker", "mode", flag_value="docker", help="Run in Docker, and fail if no engine is running.")
@click.option(
    "--bus",
    type=click.Choice(["ours", "google"]),
    help="In Docker: our durable emulator (the default), or Google's, which is in memory and has no faults and no push.",
)
@click.option(
    "--observe",
    is_flag=True,
    help="In Docker: also start Grafana with traces, metrics, a dashboard and alerts, until `fern down`.",
)
def up(mode: Mode | None, bus: Bus | None, observe: bool) -> None:
    """Start everything and wait until it is healthy.

    Uses Docker if an engine is running; otherwise starts plain processes with an embedded PostgreSQL and Pub/Sub emulator.
    """
    settings = Settings.load()
    progress = Progress(make_console())
    started = time.monotonic()
    check_python()
    check_home(settings)
    if bus != "google" and not observe and _is_up(mode, settings):
        _print_addresses(settings, progress.console, "already up")
        return
    try:
        if _decide(mode, settings, bus, observe=observe) == "docker":
            _up_in_docker(settings, progress, bus or settings.bus, observe=observe or settings.observed)
        else:
            _up_embedded(settings, progress)
        with progress.step("demo data"):
            _seed(settings)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(settings.home, free_bytes(settings.home)) from error
        raise
    _print_addresses(settings, progress.console, f"up ({settings.mode}, {time.monotonic() - started:.1f} s)")


def _is_up(asked: Mode | None, settings: Settings) -> bool:
    """Whether the system runs as asked, with these settings, from these sources, and every process is healthy."""
    if settings.mode != "embedded" or asked == "docker":
        return False
    supervisor = EmbeddedRuntime(settings).supervisor
    if not (supervisor.is_running() and supervisor.is_current()):
        return False
    changed = max(path.stat().st_mtime for pattern in SOURCES for path in PROJECT_ROOT.glob(pattern))
    return changed < settings.started_at and all(process.is_fine for process in processes_now(settings))


def _decide(asked: Mode | None, settings: Settings, bus: Bus | None, *, observe: bool) -> Mode:
    """The mode that was asked for, else that of the running system, else Docker if an engine is running. Takes a few seconds if
    an engine hangs.
    """
    if bus == "google" or observe:
        if asked == "embedded":
            option = "--observe" if observe else "--bus google"
            raise click.UsageError(f"{option} needs Docker: leave out --embedded.")
        asked = "docker"
    if asked == "embedded" or (asked is None and settings.mode == "embedded"):
        return "embedded"
    engine = find_engine()
    if asked is None and engine.state == "missing" and settings.mode != "docker":
        return "embedded"
    require_engine(engine, why=WITHOUT_GRAFANA if observe else "")
    return "docker"


def _up_embedded(settings: Settings, progress: Progress) -> None:
    if settings.mode == "docker" and find_engine().state == "answering":  # both need the same ports
        docker.down(settings, delete_data=False)
    EmbeddedRuntime(settings, progress).up()


def _up_in_docker(settings: Settings, progress: Progress, bus: Bus, *, observe: bool) -> None:
    docker.check_delivery(Overrides.load(settings), bus)
    everything = EmbeddedRuntime(settings, progress)
    console = EmbeddedRuntime(settings, progress, only_console=True)
    if console.supervisor.is_running() and not console.supervisor.is_current():
        everything.down()
    if settings.mode is None:
        check_ports(settings, everything.supervisor)
    settings.remember("docker", bus, observed=observe)
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


def _print_addresses(settings: Settings, console: Console, state: str) -> None:
    pages = {
        "the console": settings.url("console"),
        "Labour API": settings.url("labour-api") + "/schema",
        "Notification API": settings.url("notification-api") + "/schema",
        "the phones": settings.url("sms-sandbox"),
    }
    if settings.observed:
        pages["Grafana"] = f"http://127.0.0.1:{settings.grafana_port}/d/{DASHBOARD}"
    console.print(f"\n[bold]FernLabour is {state}[/]")
    for name, url in pages.items():
        console.print(f"  {name:<17} {url}")
    console.print("\nOpen the console, or watch one labour reach two phones here:  [bold]make demo[/]")

"""`fern drain`: handles the messages that wait for a consumer, and ends. For a scheduled job."""

import json
import os
import subprocess
import sys

import click

from fern.errors import JobFailed, NotRunning
from fern.overrides import Overrides
from fern.runtime import docker
from fern.settings import PROJECT_ROOT, Settings


@click.command()
@click.argument("consumer", type=click.Choice(["notification"]))
def drain(consumer: str) -> None:
    """Pull and handle the messages that wait for CONSUMER. Ends once every subscription has been empty for 5 seconds.

    It can run beside other consumers. Subscriptions that are pushed are left to the bus.
    """
    settings = Settings.load()
    if settings.mode is None:
        raise NotRunning("nothing is running.", command="make up")
    done = docker.drain(settings, consumer) if settings.mode == "docker" else _run(settings, consumer)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    handled = [line["handled"] for line in lines if line["event"] == "drained"]
    if done.returncode != 0 or not handled:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise JobFailed(f"{consumer} could not be drained.", details=last, command="fern status")
    click.echo(f"{consumer}: {handled[0]} messages handled")


def _run(settings: Settings, consumer: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", consumer, "consumer", "--drain"]
    environment = {
        **os.environ,
        **settings.environment(f"{consumer}-consumer"),
        **Overrides.load(settings).environment(),
    }
    return subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)

"""`fern quest`: experiments that compare designs. They live in e2e/quest, with the other programs that run everything."""

import subprocess
import sys

import click

from fern.settings import PROJECT_ROOT

PASS_ON = {"ignore_unknown_options": True, "help_option_names": []}  # the experiment knows its own options


@click.group()
def quest() -> None:
    """Put the design to the test: other designs and ours, side by side, against the same faults."""


@quest.command("sms", context_settings=PASS_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def sms(options: tuple[str, ...]) -> None:
    """Three designs of sending a text: who is told once, twice, or never? Options: --messages, --seed, --json."""
    command = [sys.executable, "-m", "e2e.quest.sms", *options]
    sys.exit(subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode)

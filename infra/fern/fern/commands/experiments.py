"""`fern chaos`, `museum` and `quest`: programs that run everything, against everything. They live in e2e, beside the tests."""

import subprocess
import sys

import click

from fern.settings import PROJECT_ROOT


def _program(name: str, summary: str) -> click.Command:
    """Passes everything on, `--help` too: the program knows its own options."""

    @click.command(
        name,
        help=summary,
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        add_help_option=False,
    )
    @click.argument("options", nargs=-1, type=click.UNPROCESSED)
    def run(options: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", f"e2e.experiments.{name}", *options]
        sys.exit(subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode)

    return run


chaos = _program("chaos", "Break everything under load, from a seed, and account for every message.")
museum = _program("museum", "Put historical mistakes back in, one by one, and see each of them caught.")
quest = _program("quest", "Put the design to the test: other designs and ours, side by side, against the same faults.")

"""`fern chaos`, `museum` and `quest`: programs that run everything, against everything. They live in e2e, beside the tests."""

import subprocess
import sys

import click

from fern.settings import PROJECT_ROOT


def experiment(name: str, summary: str) -> click.Command:
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

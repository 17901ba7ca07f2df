"""What `fern bench`, `fern chaos`, `fern museum`, `fern quest` and `fern soak` share: each runs a program of e2e.experiments."""

import subprocess
import sys

import click

from fern.settings import PROJECT_ROOT


def experiment(name: str) -> click.Command:
    """Passes all options on, including `--help`: the program has its own."""

    @click.command(name, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("options", nargs=-1, type=click.UNPROCESSED)
    def run(options: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", f"e2e.experiments.{name}", *options]
        sys.exit(subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode)

    return run

"""What the experiments share, such as `fern bench` and `fern chaos`: each runs a program of e2e.experiments."""

import subprocess
import sys
from importlib.util import find_spec

import click

from fern.errors import FernError
from fern.settings import PROJECT_ROOT


def experiment(name: str, *, needs: str | None = None) -> click.Command:
    """A command that passes all options on to a program, including `--help`. `needs` is a module of the development tools."""

    @click.command(name, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("options", nargs=-1, type=click.UNPROCESSED)
    def run(options: tuple[str, ...]) -> None:
        if needs and not find_spec(needs):
            raise FernError(f"fern {name} needs the development tools.", command="make install")
        command = [sys.executable, "-m", f"e2e.experiments.{name}", *options]
        sys.exit(subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode)

    return run

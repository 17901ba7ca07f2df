"""`fern logs`."""

import time
from pathlib import Path

import click

from fern.errors import FernError
from fern.runtime import docker
from fern.runtime.processes import processes
from fern.settings import Settings

FOLLOW_INTERVAL = 0.2


@click.command()
@click.argument("process", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on as new lines come.")
@click.option("-n", "--lines", default=20, show_default=True, help="How many lines from the end.")
def logs(process: str | None, follow: bool, lines: int) -> None:
    """Show the logs of one process, or of all."""
    settings = Settings.load()
    if settings.mode == "docker":
        docker.logs(settings, process, lines, follow=follow)
        return
    names = [process] if process else [p.name for p in processes(settings)]
    files: dict[str, Path] = {name: settings.log(name) for name in names if settings.log(name).exists()}
    if not files:
        raise FernError(f"there is no log of {process or 'anything'} yet.", command="fern status")
    positions = print_logs(files, lines)
    if follow:
        follow_logs(files, positions)


def print_logs(files: dict[str, Path], lines: int) -> dict[str, int]:
    """The end of each file. Returns how far each was read."""
    positions = {}
    for name, path in files.items():
        content = path.read_bytes()
        positions[name] = len(content)
        for line in content.decode(errors="replace").splitlines()[-lines:]:
            _print_line(name, line, alone=len(files) == 1)
    return positions


def follow_logs(files: dict[str, Path], positions: dict[str, int]) -> None:
    """Until interrupted. A file that became shorter was rotated and is read from its beginning."""
    while True:
        for name, path in files.items():
            size = path.stat().st_size if path.exists() else 0
            start = positions[name] if size >= positions[name] else 0
            if size > start:
                with path.open("rb") as file:
                    file.seek(start)
                    chunk = file.read()
                whole_lines = chunk[: chunk.rfind(b"\n") + 1]  # the rest of a line comes with the next look
                for line in whole_lines.decode(errors="replace").splitlines():
                    _print_line(name, line, alone=len(files) == 1)
                positions[name] = start + len(whole_lines)
            else:
                positions[name] = start
        time.sleep(FOLLOW_INTERVAL)


def _print_line(name: str, line: str, *, alone: bool) -> None:
    click.echo(line if alone else click.style(f"{name:<24}", fg="cyan") + line)

"""`fern logs`: the logs of the processes."""

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
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come.")
@click.option("-n", "--lines", default=20, show_default=True, help="Number of lines from the end.")
def logs(process: str | None, follow: bool, lines: int) -> None:
    """Show the logs of one process, or of all."""
    settings = Settings.load()
    if settings.mode == "docker":
        docker.logs(settings, process, lines, follow=follow)
        return
    names = [process] if process else [process.name for process in processes(settings)]
    files = {name: settings.log(name) for name in names if settings.log(name).exists()}
    if not files:
        raise FernError(f"there is no log of {process or 'any process'} yet.", command="fern status")
    positions = dict.fromkeys(files, 0)
    for name, path in files.items():
        content = path.read_bytes()
        positions[name] = len(content)
        _print(name, content, last=lines, alone=len(files) == 1)
    while follow:
        time.sleep(FOLLOW_INTERVAL)
        for name, path in files.items():
            positions[name] = _print_new(name, path, positions[name], alone=len(files) == 1)


def _print_new(name: str, path: Path, position: int, *, alone: bool) -> int:
    """Returns how far the file is read. One that became shorter was rotated and is read from its beginning."""
    size = path.stat().st_size if path.exists() else 0
    start = position if size >= position else 0
    if size == start:
        return start
    with path.open("rb") as file:
        file.seek(start)
        chunk = file.read()
    whole_lines = chunk[: chunk.rfind(b"\n") + 1]  # the next look gets the rest of a line
    _print(name, whole_lines, alone=alone)
    return start + len(whole_lines)


def _print(name: str, content: bytes, *, last: int = 0, alone: bool) -> None:
    for line in content.decode(errors="replace").splitlines()[-last:]:
        click.echo(line if alone else click.style(f"{name:<24}", fg="cyan") + line)

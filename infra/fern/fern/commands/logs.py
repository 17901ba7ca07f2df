"""`fern logs`: the logs of all processes, merged by time."""

import time
from pathlib import Path

import click

from fern.errors import FernError
from fern.log_lines import LogLine, of_containers, parse
from fern.runtime import docker
from fern.runtime.processes import processes
from fern.settings import Settings

FOLLOW_INTERVAL = 0.2
LONGEST = 1000  # lines of a traceback


@click.command()
@click.argument("process", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come.")
@click.option(
    "-n", "--lines", type=click.IntRange(1), default=50, show_default=True, help="Lines from the end, in all."
)
@click.option("--json", "as_json", is_flag=True, help="Print each line as the JSON object that was logged.")
def logs(process: str | None, follow: bool, lines: int, as_json: bool) -> None:
    """Show the logs of one process, or of all merged by time: time (UTC), process, level, sentence, fields.

    In Docker, -f shows them as the engine prints them.
    """
    settings = Settings.load()
    if settings.mode == "docker" and process != "console":  # which runs on the host
        found = of_containers(docker.logs(settings, process, lines, follow=follow))
        width = max((len(line.process) for line in found), default=0)
        _print(found[-lines:], width, as_json=as_json)
        return
    reader = _Reader(settings, process)
    if not reader.files():
        names = ", ".join(one.name for one in processes(settings))
        what = f"there is no log of {process or 'any process'} yet. Processes: {names}."
        raise FernError(what, command="fern status")
    _print(reader.new(lines)[-lines:], reader.width, as_json=as_json)
    while follow:
        time.sleep(FOLLOW_INTERVAL)
        _print(reader.new(), reader.width, as_json=as_json)


class _Reader:
    """Remembers how far each file is read. One that became shorter was rotated, and is read from its beginning."""

    def __init__(self, settings: Settings, process: str | None) -> None:
        self._folder, self._process = settings.logs, process
        self._positions: dict[Path, int] = {}

    def files(self) -> list[Path]:
        """The log files, also of processes that `fern scale` has added or removed since the last call."""
        return sorted(self._folder.glob(f"{self._process or '*'}.log"))

    @property
    def width(self) -> int:
        return max(len(path.stem) for path in self.files())

    def new(self, most: int = 0) -> list[LogLine]:
        """What was written since the last call, by time; if `most` is given, only the end of each file that can have so many."""
        found = [
            line
            for path in self.files()
            for line in parse(path.stem, self._read(path)[-(most + LONGEST) if most else 0 :])
        ]
        return sorted(found, key=lambda line: line.at)

    def _read(self, path: Path) -> list[str]:
        size, position = path.stat().st_size, self._positions.get(path, 0)
        with path.open("rb") as file:
            file.seek(position if size >= position else 0)
            chunk = file.read()
            whole = chunk[: chunk.rfind(b"\n") + 1]  # the next call gets the rest of a line
            self._positions[path] = file.tell() - len(chunk) + len(whole)
        return whole.decode(errors="replace").splitlines()


def _print(lines: list[LogLine], width: int, *, as_json: bool) -> None:
    for line in lines:
        click.echo(line.to_json() if as_json else line.to_text(width))

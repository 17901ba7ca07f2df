"""Reads the processes' log files: the end of each, and then whatever is appended."""

import time
from pathlib import Path

import click

FOLLOW_INTERVAL = 0.2


def print_logs(files: dict[str, Path], lines: int) -> dict[str, int]:
    """Returns how far each file was read."""
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

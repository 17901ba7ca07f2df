"""The log lines of all processes, in the order of their times: as people read them, or as JSON.

Our processes write one JSON object a line. PostgreSQL has its own format. Any other line, such as one of a traceback, belongs to
the line before it.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import click

_POSTGRES = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) UTC \[\d+\] (?:\S+ )?([A-Z]+)\d?: +(.*)")
_CONTAINER = re.compile(r"(?:fernlabour-)?(\S+?)(?:-1)? +\| ?(.*)")
_LEVELS = {"LOG": "info", "NOTICE": "info", "FATAL": "error", "PANIC": "critical"}  # others keep their name
_COLOURS = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "red"}
_NOT_SHOWN = ("event", "process", "severity", "timestamp", "trace_id", "span_id", "exception")


@dataclass
class LogLine:
    at: datetime
    process: str
    facts: dict[str, Any]
    more: list[str] = field(default_factory=list)  # the lines that belong to it

    def to_json(self) -> str:
        return json.dumps(self.facts | ({"more": self.more} if self.more else {}), ensure_ascii=False)

    def to_text(self, width: int) -> str:
        """`width` is that of the longest name of a process. Colours are for `click.echo`, which omits them in a pipe."""
        level, is_today = self.facts.get("severity", "INFO").lower(), self.at.date() == datetime.now(UTC).date()
        at = f"{self.at:%H:%M:%S}" if is_today else f"{self.at:%Y-%m-%d %H:%M:%S}"
        shown = {name: value for name, value in self.facts.items() if name not in _NOT_SHOWN}
        fields = " ".join(f"{name}={_text(value)}" for name, value in shown.items())
        below = [*str(self.facts.get("exception") or "").splitlines(), *self.more]
        first = (
            f"{at}.{self.at.microsecond // 1000:03}",
            click.style(f"{self.process:<{width}}", fg="cyan"),
            click.style(f"{level:<7}", fg=_COLOURS.get(level)),
            str(self.facts.get("event", "")),
            click.style(fields, dim=True) if fields else "",
        )
        return "\n".join(("  ".join(part for part in first if part), *(f"    {line}" for line in below)))


def parse(process: str, lines: Iterable[str]) -> Iterator[LogLine]:
    """Parse the lines of one log. Lines at its beginning that continue an earlier line are dropped."""
    latest: LogLine | None = None
    for line in lines:
        if (found := _json(process, line) or _postgres(process, line)) is None:
            if latest and line.strip():
                latest.more.append(line.strip("\t"))
            continue
        if latest:
            yield latest
        latest = found
    if latest:
        yield latest


def of_containers(text: str) -> list[LogLine]:
    """Parse and sort what `docker compose logs` prints. The first container of a service has its name, as in `fern status`."""
    by_process = defaultdict[str, list[str]](list)
    for line in text.splitlines():
        if found := _CONTAINER.match(line):
            by_process[found[1]].append(found[2])
    lines = [line for process, texts in by_process.items() for line in parse(process, texts)]
    return sorted(lines, key=lambda line: line.at)


def _json(process: str, line: str) -> LogLine | None:
    try:
        facts = json.loads(line)
        at = datetime.fromisoformat(facts["timestamp"])
    except (ValueError, KeyError, TypeError):
        return None
    return LogLine(at, process, facts)


def _postgres(process: str, line: str) -> LogLine | None:
    if (found := _POSTGRES.match(line)) is None:
        return None
    at = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    level = _LEVELS.get(found[2], found[2].lower())
    return LogLine(
        at,
        process,
        {"event": found[3], "process": process, "severity": level.upper(), "timestamp": f"{at.isoformat()}"},
    )


def _text(value: Any) -> str:
    if isinstance(value, str) and value and not re.search(r'[\s"=]', value):
        return value
    return json.dumps(value, ensure_ascii=False)

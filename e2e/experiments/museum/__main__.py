"""`fern museum`: reintroduce common mistakes one at a time, and show that the checks catch them.

`exhibits` has the mistakes, `scenarios` how each is provoked, `testbed` where they run. Each scenario runs twice: with our part
no promise may be broken, and with the mistake the check must report exactly the violations that the exhibit names. Production
code contains none of it.

Exit code 21 unless every mistake was caught.
"""

import asyncio
import inspect
import os
import re
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from uuid import uuid4

import click
from rich.console import Console
from sqlalchemy import text

from contracts.events import LabourCompleted, NotificationDelivered, NotificationSent, SubscriberAdded
from e2e.experiments.museum.exhibit import PROMISES, Exhibit
from e2e.experiments.museum.exhibits import EXHIBITS
from e2e.experiments.museum.testbed import Testbed
from e2e.support.bus import apply_topology
from e2e.support.databases import fresh_databases, migrated_server
from e2e.support.sample_events import TOPICS
from fern.errors import FernError
from fern.output import Progress, json_option, make_console, print_json, print_table
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ROOT
from messaging.database import create_engine
from messaging.pubsub import PubSub
from pubsub_emulator.server import Running, running
from servicekit.logs import configure

PAGE = PROJECT_ROOT / "docs" / "museum.md"
NOT_ALL_CAUGHT = 21
LIMIT = 180.0  # seconds for an exhibit, which takes one or two unless it is broken
_OPENING = """
# The bug museum

This page lists twenty-four mistakes that people make when an effect must happen exactly once. `fern museum`
reintroduces each mistake, outside the services, and runs one scenario twice on a real PostgreSQL and our durable
Pub/Sub emulator: with our code no promise may be broken, and with the mistake the check must report exactly the
violations below. The numbers of the promises are those of [guarantees.md](guarantees.md). The mistakes follow the path
of an event: the command, the relay, the consumer, the dispatcher, the projection.

`fern museum --write-page` writes this page from [the exhibits](../e2e/experiments/museum/exhibits) and [the
scenarios](../e2e/experiments/museum/scenarios). [The quest of deltas](quest-deltas.md) compares other designs of the
consumer.
"""
_TOPICS = (
    TOPICS
    | {event.type: ["notification"] for event in (SubscriberAdded, LabourCompleted)}
    | {event.type: ["labour"] for event in (NotificationSent, NotificationDelivered)}
)


@dataclass(frozen=True, slots=True)
class ExhibitResult:
    exhibit: Exhibit
    with_ours: list[str]
    with_mistake: list[str]
    seconds: float

    @property
    def caught(self) -> bool:
        return not self.with_ours and tuple(self.with_mistake) == self.exhibit.expected

    @property
    def how(self) -> str:
        if self.with_ours:
            return "our own part failed: " + "; ".join(self.with_ours)
        return "; ".join(self.with_mistake) or "nothing was reported"

    def row(self) -> tuple[str, ...]:
        promise = f"{self.exhibit.breaks}: {PROMISES[self.exhibit.breaks]}"
        return self.exhibit.title, promise, self.how, "[green]caught[/]" if self.caught else "[red]not caught[/]"

    def to_json(self) -> dict[str, object]:
        exhibit = {name: getattr(self.exhibit, name) for name in ("name", "title", "breaks")}
        seen = {name: getattr(self, name) for name in ("caught", "with_ours", "with_mistake")}
        return {**exhibit, **seen, "seconds": round(self.seconds, 2)}


async def examine(exhibit: Exhibit, postgres: TemporaryServer, bus: Running) -> ExhibitResult:
    """Run the scenario with our part and with the mistake. PUBSUB_EMULATOR_HOST must be the address of the bus."""
    began = time.monotonic()
    async with asyncio.timeout(LIMIT), _testbed(postgres, bus) as bed:
        with_ours = await exhibit.scenario(bed, exhibit.ours)
        await bed.clear()
        with_mistake = await exhibit.scenario(bed, exhibit.mistake)
    return ExhibitResult(exhibit, with_ours, with_mistake, time.monotonic() - began)


@asynccontextmanager
async def _testbed(postgres: TemporaryServer, bus: Running) -> AsyncIterator[Testbed]:
    """A testbed with new databases and topics."""
    urls = await fresh_databases(postgres)
    labour, notification = (create_engine(url, process="museum", connect_timeout=60) for url in urls.values())
    project = f"museum-{uuid4().hex[:12]}"
    await apply_topology(project, _TOPICS, minimum_backoff_seconds=0)
    client = PubSub(project)
    try:
        async with notification.begin() as connection:
            await connection.execute(text("CREATE TABLE effect (number integer NOT NULL)"))
        yield Testbed(labour, notification, urls["labour"], urls["notification"], client, bus.broker)
    finally:
        await client.close()
        await labour.dispose()
        await notification.dispose()


async def examine_all(
    exhibits: Sequence[Exhibit], postgres: TemporaryServer, directory: Path, console: Console
) -> list[ExhibitResult]:
    results = []
    async with running(directory / "bus") as bus:
        os.environ["PUBSUB_EMULATOR_HOST"] = bus.target
        for exhibit in exhibits:
            with Progress(console).waiting(exhibit.title):
                result = await examine(exhibit, postgres, bus)
            mark = "[green]✓[/]" if result.caught else "[red]✗[/]"
            console.print(f"{mark} {exhibit.title:<36} [dim]{result.seconds:5.1f} s[/]")
            results.append(result)
    return results


def page() -> str:
    """docs/museum.md, written from the docstrings and the code of the exhibits."""
    parts = [_OPENING.strip()]
    for number, exhibit in enumerate(EXHIBITS, 1):
        reports = "\n".join(f"- {finding}" for finding in exhibit.expected)
        parts += [
            f"## {number}. {exhibit.title}",
            _prose(exhibit.mistake),
            f"```python\n{_code(exhibit.mistake)}\n```",
            _prose(exhibit.scenario, "**The scenario.** "),
            f"**Breaks promise {exhibit.breaks}**: {PROMISES[exhibit.breaks]}. The check reports:",
            reports,
        ]
    return "\n\n".join(parts) + "\n"


def _prose(thing: object, before: str = "") -> str:
    return textwrap.fill(before + " ".join((inspect.getdoc(thing) or "").split()), 120)


def _code(mistake: object) -> str:
    """The source without the decorator and the docstring."""
    source = inspect.getsource(mistake)  # type: ignore[arg-type]
    undecorated = re.split(r"^(?=class |def |async def )", source, maxsplit=1, flags=re.MULTILINE)[1]
    head, _, body = undecorated.split('"""')
    return f"{head.rstrip()}\n{body.strip(chr(10))}"


def chosen(name: str | None) -> list[Exhibit]:
    found = [exhibit for exhibit in EXHIBITS if name in (None, exhibit.name)]
    if found:
        return found
    names = [exhibit.name for exhibit in EXHIBITS]
    near = get_close_matches(name or "", names, n=1, cutoff=0.0)[0]
    listed = "\n".join(names)
    raise FernError(f"there is no exhibit {name}; there are:", command=f"fern museum {near}", details=listed)


def conclude(results: Sequence[ExhibitResult], as_json: bool) -> None:
    caught = sum(result.caught for result in results)
    if as_json:
        print_json({"caught": caught, "of": len(results), "exhibits": [result.to_json() for result in results]})
    else:
        click.echo()
        print_table(
            "mistake | the promise it breaks | what the check reported | ", (result.row() for result in results)
        )
        colour = "green" if caught == len(results) else "red"
        make_console().print(f"\n[{colour}]{caught} of {len(results)} mistakes caught[/]")
    if caught < len(results):
        sys.exit(NOT_ALL_CAUGHT)


@click.command("museum")
@click.argument("name", required=False)
@json_option
@click.option("--write-page", is_flag=True, help="Write docs/museum.md, and run nothing.")
def main(name: str | None, as_json: bool, write_page: bool) -> None:
    """Reintroduce common mistakes, all or only NAME, and show that each is caught."""
    if write_page:
        PAGE.write_text(page())
        return
    exhibits = chosen(name)
    configure("museum", "CRITICAL")
    console = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fern-museum-")))
        with Progress(console).step("a temporary PostgreSQL"):
            postgres = stack.enter_context(migrated_server(directory))
        results = asyncio.run(examine_all(exhibits, postgres, directory, console))
    conclude(results, as_json)


if __name__ == "__main__":
    main(prog_name="fern museum")

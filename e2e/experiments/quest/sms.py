"""`fern quest sms`: who gets a text once, when everything that can go wrong does? Three designs, the same seeded faults.

Each design runs on the real Twilio client, a real PostgreSQL, and the SMS sandbox as the provider; what is counted are the
texts that the phones got. Exit code 1 if our design lost or doubled a text under a fault that it claims to survive.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from uuid_utils.compat import uuid7

from e2e.experiments.quest.designs import CREATE_CLAIMS, DESIGNS, Design, LedgerAndAsking
from e2e.experiments.quest.misfortune import FAULTS, QUARANTINE, RATE, Crash, Fault, Misfortune, Wire
from e2e.support.databases import migrate
from fern.runtime.postgres import ensure_service_databases, temporary_server
from fern.runtime.progress import make_console
from messaging.database import connect_raw, create_engine
from notification.domain import wording
from notification.domain.notification import Notification
from servicekit.logs import configure
from sms_sandbox import Address, running

MOST = 40  # people per fault; each may need two connections to the database


@dataclass(frozen=True, slots=True)
class Count:
    lost: int
    duplicated: int
    once: int

    def __add__(self, other: "Count") -> "Count":
        return Count(self.lost + other.lost, self.duplicated + other.duplicated, self.once + other.once)


@dataclass(frozen=True, slots=True)
class Result:
    fault: str
    remains: bool
    counts: dict[str, Count]


async def experiment(url: str, *, messages: int, seed: int, progress: Callable[[str, float], None]) -> list[Result]:
    connection = await connect_raw(url, process="quest")
    await connection.execute(CREATE_CLAIMS)
    await connection.close()
    results = []
    for fault in FAULTS:
        began = time.monotonic()
        counts = await asyncio.gather(*(trial(url, design, fault, messages, seed) for design in DESIGNS))
        names = [design.name for design in DESIGNS]
        results.append(Result(fault.name, fault.remains, dict(zip(names, counts, strict=True))))
        progress(fault.name, time.monotonic() - began)
    return results


async def trial(url: str, design: type[Design], fault: Fault, messages: int, seed: int) -> Count:
    """One design under one fault, with a provider of its own and as many people as there are messages."""
    everyone = [message(number) for number in range(messages)]
    misfortune = Misfortune(fault, seed)
    with tempfile.TemporaryDirectory(prefix="fern-quest-") as directory:
        async with running(Path(directory)) as sms:
            for name, parameters in fault.provider.items():
                sms.sandbox.faults.set(name, {"rate": RATE, "seed": seed, **parameters})
            engine = create_engine(url, process=design.name, pool_size=2 * MOST)
            wire = Wire(sms.url, misfortune.may_crash, design.timeout)
            try:
                await design(engine, wire, misfortune).tell(everyone)
            finally:
                await wire.close()
                await engine.dispose()
            while sms.sandbox.store.next_step_at() is not None:  # noqa: ASYNC110  (what is created late must arrive first)
                await asyncio.sleep(0.02)
            return count(everyone, sms)


def message(number: int) -> Notification:
    new_id = uuid7()
    body = wording.write("labour.completed", mother_name="Ada", notification_id=new_id)
    return Notification(
        id=new_id,
        event_id=uuid7(),
        event_type="labour.completed",
        labour_id=uuid7(),
        person_id=uuid7(),
        person_name="Grace",
        phone=f"+120255501{number:02}",
        body=body,
        segments=wording.segments(body),
    )


def count(everyone: list[Notification], sms: Address) -> Count:
    bodies = Counter(seen.body for one in everyone for seen in sms.sandbox.store.newest(one.phone, 1000))
    texts = [bodies[one.body] for one in everyone]
    return Count(texts.count(0), sum(number > 1 for number in texts), texts.count(1))


def table(results: list[Result]) -> Table:
    shown = Table("lost · twice · once", box=None, pad_edge=False)
    for design in DESIGNS:
        shown.add_column(design.name, justify="right")
    for result in results:
        shown.add_row(result.fault + (" *" if result.remains else ""), *map(cell, result.counts.values()))
    shown.add_row("all", *map(cell, totals(results).values()))
    claimed = [result for result in results if not result.remains]
    shown.add_row("all without *", *map(cell, totals(claimed).values()))
    return shown


def cell(count: Count) -> str:
    colour = "red" if count.lost or count.duplicated else "green"
    return f"[{colour}]{count.lost} · {count.duplicated} · {count.once}[/]"


def totals(results: list[Result]) -> dict[str, Count]:
    return {design.name: sum((result.counts[design.name] for result in results), Count(0, 0, 0)) for design in DESIGNS}


def broken(results: list[Result]) -> list[str]:
    """Faults under which our design did not keep its word. It never loses a text, not even where a second one remains."""
    ours = [(result, result.counts[LedgerAndAsking.name]) for result in results]
    return [result.fault for result, count in ours if count.lost or (count.duplicated and not result.remains)]


def run(messages: int, seed: int, progress: Callable[[str, float], None]) -> list[Result]:
    """On a PostgreSQL of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="fern-quest-") as directory, temporary_server(Path(directory)) as server:
        asyncio.run(ensure_service_databases(server.dsn()))
        url = server.url("notification", "notification")
        migrate("notification", url)
        with closing(asyncio.new_event_loop()) as loop:
            loop.set_exception_handler(ignore_crashes)
            return loop.run_until_complete(experiment(url, messages=messages, seed=seed, progress=progress))


def ignore_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A crash on purpose ends its task with an exception that nobody collects."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


@click.command("sms")
@click.option(
    "--messages", type=click.IntRange(1, MOST), default=10, show_default=True, help="People to tell, per fault."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Decides who is hit by each fault.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def main(messages: int, seed: int, as_json: bool) -> None:
    """Three designs of sending a text against the same faults: who is told once, twice, or never?"""
    configure("quest", "CRITICAL")
    news = Console(stderr=True, highlight=False)
    news.print(
        f"{len(DESIGNS)} designs, {len(FAULTS)} faults, {messages} people each; half of them are hit (seed {seed})"
    )
    results = run(messages, seed, lambda name, seconds: news.print(f"[green]✓[/] {name:<50} [dim]{seconds:5.1f} s[/]"))
    wrong = broken(results)
    if as_json:
        sums = {name: asdict(count) for name, count in totals(results).items()}
        report = {"seed": seed, "messages": messages, "results": [asdict(result) for result in results], "totals": sums}
        click.echo(json.dumps(report | {"broken": wrong}, indent=2))
    else:
        console = make_console()
        console.print()
        console.print(table(results))
        console.print(
            f"\n* what remains: the provider hides a message for longer than the quarantine ({QUARANTINE:g} s here), or"
            "\n  the sender freezes between its look at the clock and the wire. See docs/guarantees.md."
        )
    if wrong:
        click.echo(f"our design broke its word under: {', '.join(wrong)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main(prog_name="fern quest sms")

"""`fern fairness`: one labour has many texts to send. How long do the texts of two other labours wait?

Two designs at once, each with a database, a provider and two dispatchers of its own: ours, and one queue in the order of arrival,
an exhibit of the museum. All texts wait before the first one is sent, and the ledger's times are compared.

Exit code 34 if a birth waited longer than `LATEST` seconds in our design.
"""

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from e2e.experiments.documentation import DOCS, markdown_table, with_section, write
from e2e.experiments.fairness.chart import svg
from e2e.experiments.fairness.run import ANNOUNCED, BIRTH, Load, Post, Waited, wait_times
from e2e.experiments.museum.exhibits.senders import one_queue_for_all
from e2e.support.databases import migrated_server
from fern.errors import FernError
from fern.output import json_option, print_json, print_table
from fern.runtime.postgres import TemporaryServer
from notification.delivery import ledger
from servicekit.logs import configure

OURS = "turns by labour"
DESIGNS: dict[str, Post] = {
    "one queue for all": one_queue_for_all,
    # The limit on waiting announcements is lifted, so that both designs have the same to send.
    OURS: partial(ledger.insert_pending, most_waiting=1_000_000),
}
KINDS = {BIRTH: "the birth of another labour", ANNOUNCED: "an announcement of a third labour"}
LATEST = 5.0  # seconds; one second for the bucket of the rate, and the rest for a busy machine
PAGE, CHART = DOCS / "fairness.md", DOCS / "images" / "fairness.svg"

Results = Mapping[str, Mapping[str, Waited]]  # by design and event type


class TooLate(FernError):
    exit_code = 34


async def compare(load: Load, postgres: TemporaryServer) -> Results:
    """Run both designs at the same time."""
    found = await asyncio.gather(*(wait_times(post, load, postgres) for post in DESIGNS.values()))
    return dict(zip(DESIGNS, found, strict=True))


def section(command: str, results: Results) -> str:
    heading = ["", *(f"{design}: seconds | behind texts" for design in results)]
    rows = [
        [title, *(f"{waits[kind].seconds:.1f} | {waits[kind].behind}" for waits in results.values())]
        for kind, title in KINDS.items()
    ]
    picture = f"![How long texts wait while another labour has many](images/{CHART.name})"
    table = "\n".join(markdown_table([heading, *rows], "|---" + "|---:" * 2 * len(results) + "|"))
    return f"```sh\n{command}\n```\n\n{table}\n\n{picture}"


def chart(results: Results) -> str:
    return svg(
        {title: {design: waits[kind].seconds for design, waits in results.items()} for kind, title in KINDS.items()},
        OURS,
    )


@click.command("fairness")
@click.option(
    "--people",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="People of the labour with many texts.",
)
@click.option(
    "--announcements", type=click.IntRange(1, 1000), default=20, show_default=True, help="Announcements of that labour."
)
@click.option("--rate", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Texts a second of a sender.")
@click.option("--write-docs", "write_docs", is_flag=True, help="Write table and chart into docs/fairness.md.")
@json_option
def main(people: int, announcements: int, rate: float, write_docs: bool, as_json: bool) -> None:
    """Compare one queue for all texts with turns by labour: how long does the birth of another labour wait?"""
    configure("fairness", "CRITICAL")
    command = f"fern fairness --people {people} --announcements {announcements} --rate {rate:g}"
    click.echo(f"{people * announcements} texts wait; that takes {people * announcements / rate:.0f} s", err=True)
    with (
        tempfile.TemporaryDirectory(prefix="fern-fairness-") as directory,
        migrated_server(Path(directory)) as postgres,
    ):
        results = asyncio.run(compare(Load(people, announcements, rate), postgres))
    if as_json:
        print_json({design: {kind: asdict(one) for kind, one in waits.items()} for design, waits in results.items()})
    else:
        print_table(
            "design | text | waited s | behind texts",
            (
                (design, title, f"{waits[kind].seconds:.1f}", waits[kind].behind)
                for design, waits in results.items()
                for kind, title in KINDS.items()
            ),
        )
    if write_docs:
        write(
            {PAGE: with_section(PAGE, section(command, results), "fern fairness --write-docs"), CHART: chart(results)}
        )
    if (seconds := results[OURS][BIRTH].seconds) > LATEST:
        raise TooLate(f"the birth waited {seconds:.1f} s, and {LATEST:g} s are promised.", command=command)


if __name__ == "__main__":
    main(prog_name="fern fairness")

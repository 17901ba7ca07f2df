"""`fern plan`: how many of each process a load needs, and what that may cost."""

from dataclasses import asdict

import click

from fern import sizing
from fern.output import json_option, print_json, print_table
from fern.sizing import Plan

ASSUMED = f"""
Estimates. Assumed: a labour is {sizing.WRITES} changes, as many reads, {sizing.PEOPLE} people and {sizing.TEXTS} texts.
The busiest minutes have {sizing.PEAK:g} times the average load, and use half of the capacity.
Events are kept for {sizing.RETENTION_DAYS} days. A process can do what docs/performance.md has measured on {sizing.CORES} cores;
a database needs at most what was left of them. Prices: US dollars, first half of 2026, tier 1 region,
with a standby for each database, without discounts; an SMS to the United States at ${sizing.SMS_US:.4f}."""


@click.command()
@click.option(
    "--labours-per-hour",
    "rates",
    type=click.FloatRange(0),
    multiple=True,
    default=(10, 1000, 100_000),
    help="Labours that are planned in an hour. Repeatable.",
)
@click.option("--at-least", type=click.IntRange(1), default=2, show_default=True, help="Replicas without any load.")
@json_option
def plan(rates: tuple[float, ...], at_least: int, as_json: bool) -> None:
    """Estimate how many of each process and how much database a number of labours an hour needs, and the cost a month.

    Give --labours-per-hour several times to compare. The default is 10, 1,000 and 100,000.
    """
    plans = [sizing.plan(rate, at_least=at_least) for rate in rates]
    if as_json:
        print_json({"items": [asdict(one) for one in plans]})
        return
    columns = ["labours an hour", *(f"{rate:,.10g}" for rate in rates)]
    print_table(" | ".join(columns), rows(plans), empty="")
    click.echo(ASSUMED)


def rows(plans: list[Plan]) -> list[list[str]]:
    """What the table shows, a row for each figure, a column for each plan."""
    processes = [[name, *(f"{one.processes[name]:,}" for one in plans)] for name in sizing.WORK]
    databases = [
        [f"{service} database", *(_database(one.databases[service]) for one in plans)]
        for service in ("labour", "notification")
    ]
    connections = [
        [f"{service} connections", *(f"{one.databases[service].connections:,}" for one in plans)]
        for service in ("labour", "notification")
    ]
    costs = [
        ["texts a second, at the peak", *(_rate(one.texts_per_second) for one in plans)],
        ["Cloud Run, $ a month", *(_dollars(one.cloud_run) for one in plans)],
        ["Cloud SQL, $ a month", *(_dollars(one.cloud_sql) for one in plans)],
        ["Pub/Sub, $ a month", *(_dollars(one.pubsub) for one in plans)],
        ["Google Cloud, $ a month", *(_dollars(one.google_cloud) for one in plans)],
        ["SMS, $ a month", *(_dollars(one.sms) for one in plans)],
    ]
    return [*processes, *databases, *connections, *costs]


def _database(database: sizing.Database) -> str:
    size = f"{database.vcpus} vCPU, {database.gigabytes:,} GB"
    return size if database.fits else f"{size}: too large for one server"


def _rate(per_second: float) -> str:
    return f"{per_second:.2g}" if per_second < 10 else f"{per_second:,.0f}"


def _dollars(amount: float) -> str:
    """Rounded to two digits: an estimate has no more."""
    if amount < 1:
        return "0" if amount < 0.5 else "1"
    step = 10 ** max(0, len(str(int(amount))) - 2)
    return f"{round(amount / step) * step:,}"

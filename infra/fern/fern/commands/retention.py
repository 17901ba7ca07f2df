"""`fern retention`: deletes claims and published events that are too old to be replayed."""

import click

from fern.client import call
from fern.output import counting, json_option, print_json
from fern.settings import SERVICES


@click.command()
@click.option("--service", type=click.Choice(SERVICES), help="One service only.")
@json_option
def retention(service: str | None, as_json: bool) -> None:
    """Delete claims and published events older than RETENTION_DAYS now. Each relay also does so every hour."""
    totals: dict[str, dict[str, int]] = {}
    for name in [service] if service else SERVICES:
        total = totals[name] = {"partitions_made": 0, "partitions_dropped": 0, "rows_deleted": 0, "put_off": 0}
        with counting(f"{name}: deleting rows") as advance:
            more = True
            while more:
                report = call(name, "POST", "/operations/retention")
                more, total["put_off"] = report["more"], report["put_off"]
                for count in ("partitions_made", "partitions_dropped", "rows_deleted"):
                    total[count] += report[count]
                advance(report["rows_deleted"])
        if not as_json:
            click.echo(f"{name}: " + ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in total.items()))
    if as_json:
        print_json(totals)
    if any(total["put_off"] for total in totals.values()):
        click.echo("some partitions could not be changed under this load; the relay tries again every hour", err=True)

"""`fern retention`: forgets what is older than anyone may replay."""

import json

import click

from fern.client import APIS, call, counting


@click.command()
@click.option("--service", type=click.Choice(list(APIS)), help="One service only.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def retention(service: str | None, as_json: bool) -> None:
    """Forget claims and published events that are older than RETENTION_DAYS, now; each relay does it hourly by itself."""
    totals: dict[str, dict[str, int]] = {}
    for name in [service] if service else APIS:
        total = totals[name] = {"partitions_made": 0, "partitions_dropped": 0, "rows_deleted": 0, "put_off": 0}
        with counting(f"{name}: deleting rows") as advance:
            more = True
            while more:
                report = call(APIS[name], "POST", "/operations/retention")
                more, total["put_off"] = report["more"], report["put_off"]
                for count in ("partitions_made", "partitions_dropped", "rows_deleted"):
                    total[count] += report[count]
                advance(report["rows_deleted"])
        if not as_json:
            click.echo(f"{name}: " + ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in total.items()))
    if as_json:
        click.echo(json.dumps(totals, indent=2))
    if any(total["put_off"] for total in totals.values()):
        click.echo("some partitions could not be changed under this load; the relay tries again every hour", err=True)

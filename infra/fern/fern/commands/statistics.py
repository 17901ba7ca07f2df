"""`fern statistics`: compares the balances of every labour with the sum of their postings, and repairs them."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import click

from fern.client import call
from fern.errors import BalanceWrong
from fern.output import Group, counting, json_option, print_json, print_table

SHOWN = 20  # differences that are printed; JSON has all


@click.group(cls=Group)
def statistics() -> None:
    """Verify or rebuild the statistics of labours. A balance is the sum of the postings of events, and can be computed again."""


@statistics.command("verify")
@json_option
def verify(as_json: bool) -> None:
    """Compare every balance with its postings. Ends with exit code 27 if one differs. Changes nothing."""
    found = list(_differences("GET", "/operations/statistics/differences"))
    _print(found, as_json, empty="every balance is the sum of its postings")
    if found:
        what = f"{len(found)} balances of {_labours(found)} labours are not the sum of their postings."
        raise BalanceWrong(what, command="fern statistics rebuild")


@statistics.command("rebuild")
@json_option
def rebuild(as_json: bool) -> None:
    """Set every balance that differs to the sum of its postings. Safe while the system runs."""
    found = list(_differences("POST", "/operations/statistics/rebuild"))
    _print(found, as_json, empty="every balance was the sum of its postings")
    if found and not as_json:
        click.echo(f"{len(found)} balances of {_labours(found)} labours are rebuilt from their postings")


def _differences(method: str, path: str) -> Iterator[dict[str, Any]]:
    after: str | None = str(UUID(int=0))
    with counting("comparing balances") as advance:
        while after is not None:
            batch = call("labour", method, path, params={"after": after})
            yield from batch["items"]
            advance(1)
            after = batch["next"]


def _print(found: list[dict[str, Any]], as_json: bool, *, empty: str) -> None:
    if as_json:
        print_json({"items": found})
        return
    rows = ([item[name] for name in ("labour_id", "what", "balance", "postings")] for item in found[:SHOWN])
    print_table("labour | what | balance | sum of postings", rows, empty=empty)
    if len(found) > SHOWN:
        click.echo(f"… and {len(found) - SHOWN} more; --json has all of them")


def _labours(found: list[dict[str, Any]]) -> int:
    return len({item["labour_id"] for item in found})

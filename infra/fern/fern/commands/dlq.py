"""`fern dlq`: why messages were dead-lettered, and what to do about them, by group of the same reason.

A dead letter is an event that one consumer could not handle. `redrive` publishes it to its topic again, where every consumer that
has completed it before ignores it, and then acks the dead letter; after a crash in between there are two copies. `discard` first
records a claim with the status DISCARDED in the consumer's database, and then acks: the event never has an effect, a replay does
not bring it back, and the audit knows why.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any
from uuid import UUID

import click

from fern.dead_letters import MOST, SUFFIX, DeadLetter, Look, discard_letters, groups_of, open_bus, redrive_letters
from fern.errors import FernError
from fern.output import Group, counting, json_option, limit_option, options, print_json, print_table, yes_option
from fern.topology import Declared
from messaging.pubsub import PubSub

CONFIRM_SECONDS = 600  # to answer the question; the longest lease there is


_selection = options(
    click.option("--event", type=click.UUID, help="Dead letters of this event."),
    click.option("--reason", help="Dead letters with this reason."),
    click.option("--type", help="Dead letters of this event type."),
    click.option("--consumer", help="Dead letters that this consumer could not handle."),
    click.option("--all", is_flag=True, help="Every dead letter."),
)


def _wanted(
    event: UUID | None, reason: str | None, type: str | None, consumer: str | None, all: bool
) -> dict[str, str]:
    """The attributes of the dead letters that the options of `_selection` choose."""
    if not (event or reason or type or consumer or all):
        what = "no dead letters are named: give --event, --reason, --type, --consumer, or --all."
        raise FernError(what, command="fern dlq ls")
    if type and f"{type}{SUFFIX}" not in Declared.load().topics:
        raise FernError(f"there is no topic {type!r}.", command="fern topology show")
    given = {"event_id": event and str(event), "reason": reason, "topic": type, "consumer": consumer}
    return {name: value for name, value in given.items() if value}


@contextlib.asynccontextmanager
async def _find(wanted: dict[str, str]) -> AsyncIterator[tuple[PubSub, Look, list[DeadLetter]]]:
    """Hold all dead letters with these attributes until the context ends: one that dies again must not be found again."""
    found = list[DeadLetter]()
    async with open_bus() as bus, Look(bus, [wanted["topic"]] if "topic" in wanted else ()) as look:
        with counting("looking at dead letters") as advance:
            async for batch in look.batches():
                advance(len(batch))
                found += [one for one in batch if all(getattr(one, name) == value for name, value in wanted.items())]
        if look.is_full:
            click.echo(f"there are more than {MOST} dead letters; repeat the command for the rest", err=True)
        yield bus, look, found


async def _look(wanted: dict[str, str]) -> list[DeadLetter]:
    async with _find(wanted) as (_, _, letters):
        return letters


@click.group(cls=Group)
def dlq() -> None:
    """List, show, redrive or discard dead letters. They hold up no other event, and stay on the bus for 31 days."""


@dlq.command("ls")
@limit_option(100, "Number of messages in the JSON.")
@json_option
def list_letters(limit: int, as_json: bool) -> None:
    """Show dead letters by topic, consumer and reason."""
    letters = asyncio.run(_look({}))
    if as_json:
        print_json({"groups": groups_of(letters), "items": [letter.facts() for letter in letters[:limit]]})
    else:
        _print_groups(letters)


@dlq.command("show")
@_selection
@limit_option(10, "Number of messages.")
@json_option
def show(limit: int, as_json: bool, **selection: Any) -> None:
    """Show why messages were dead-lettered, and their content without people's names, numbers and texts."""
    letters = asyncio.run(_look(_wanted(**selection)))
    shown = [letter.details() for letter in letters[:limit]]
    if as_json:
        print_json({"items": shown})
        return
    for item in shown:
        lines = (
            f"{name:>10}  {value if isinstance(value, str) else json.dumps(value)}" for name, value in item.items()
        )
        click.echo("\n".join(lines) + "\n")
    click.echo(f"{len(shown)} of {len(letters)} dead letters")


@dlq.command("redrive")
@_selection
def redrive(**selection: Any) -> None:
    """Publish messages to their topics again. A consumer that has completed one before ignores it.

    An event that several consumers could not handle is published once: its topic leads to all of them.
    """

    async def redriven() -> tuple[int, int]:
        async with _find(_wanted(**selection)) as (bus, look, letters):
            with counting("redriving", len(_some(letters))) as advance:
                return await redrive_letters(bus, look, letters, advance), len(letters)

    done, of = asyncio.run(redriven())
    click.echo(f"{done} of {of} dead letters are published again")
    if done < of:
        raise FernError(f"the bus rejects {of - done} of them; they stay dead letters.", command="fern dlq ls")


@dlq.command("discard")
@_selection
@yes_option
def discard(yes: bool, **selection: Any) -> None:
    """Discard messages: they never have an effect, even if they are published again. Prints one line for each."""

    async def discarded() -> None:
        async with _find(_wanted(**selection)) as (_, look, letters):
            if not yes and _some(letters):
                _print_groups(letters)
                await look.hold(CONFIRM_SECONDS)
                click.confirm(f"Discard these {len(letters)} messages? They will never have an effect.", abort=True)
            with counting("discarding", len(_some(letters))) as advance:
                async for letter in discard_letters(look, letters):
                    click.echo(f"discarded {letter.event_id or '(no id)'} {letter.topic} {letter.reason}")
                    advance(1)

    asyncio.run(discarded())


def _some(letters: list[DeadLetter]) -> list[DeadLetter]:
    if not letters:
        raise FernError("no dead letter matches these options.", command="fern dlq ls")
    return letters


def _print_groups(letters: Iterable[DeadLetter]) -> None:
    columns = "topic | consumer | reason | messages | dead since | one of them"
    print_table(columns, (group.values() for group in groups_of(letters)), empty="no dead letters")

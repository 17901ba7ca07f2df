"""`fern dlq`: why messages were dead-lettered, and what to do about them, by group of the same reason.

A dead letter is an event that one consumer could not handle. `redrive` publishes it to its topic again, where every consumer that
has completed it before ignores it, and then acks the dead letter; after a crash in between there are two copies. `discard` first
records a claim with the status DISCARDED in the consumer's database, and then acks: the event never has an effect, a replay does
not bring it back, and the audit knows why.
"""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from typing import Any
from uuid import UUID

import click

from fern.client import call
from fern.dead_letters import BY_US, MOST, SUFFIX, DeadLetter, Look, open_bus
from fern.errors import FernError
from fern.output import counting, json_option, limit_option, options, print_json, print_table, yes_option
from fern.settings import CONSUMERS
from fern.topology import Declared
from messaging.bus import Outgoing
from messaging.errors import PublishRejected
from messaging.pubsub import PubSub
from servicekit.logs import mask_value

BATCH = 100  # messages published or discarded at once
CONFIRM_SECONDS = 600  # to answer the question; the longest lease there is


_selection = options(
    click.option("--event", type=click.UUID, help="Those of this event."),
    click.option("--reason", help="Those with this reason."),
    click.option("--type", help="Those of this event type."),
    click.option("--consumer", help="Those that this consumer could not handle."),
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
    """All of them, held until the context ends: one that is redriven and dies again must not be found again."""
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


@click.group()
def dlq() -> None:
    """Dead letters: list, show, redrive, discard. They hold up no other event, and stay on the bus for 31 days."""


@dlq.command("ls")
@limit_option(100, "Number of messages in the JSON.")
@json_option
def list_letters(limit: int, as_json: bool) -> None:
    """Show dead letters by topic, consumer and reason."""
    letters = asyncio.run(_look({}))
    if as_json:
        print_json({"groups": _groups(letters), "items": [_facts(letter) for letter in letters[:limit]]})
    else:
        _print_groups(letters)


@dlq.command("show")
@_selection
@limit_option(10, "Number of messages.")
@json_option
def show(limit: int, as_json: bool, **selection: Any) -> None:
    """Show why messages were dead-lettered, and their content without people's names, numbers and texts."""
    letters = asyncio.run(_look(_wanted(**selection)))
    shown = [
        {
            **_facts(letter),
            "detail": letter.message.attributes.get(f"{BY_US}detail", ""),
            "attributes": mask_value(letter.original),
            "data": _masked(letter.message.data),
        }
        for letter in letters[:limit]
    ]
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

    async def publish_again() -> tuple[int, int]:
        async with _find(_wanted(**selection)) as (bus, look, letters):
            done, seen = 0, set[tuple[str, str]]()
            with counting("redriving", len(letters)) as advance:
                for topic, batch in _batches(letters):
                    copies = {(topic, one.event_id or one.message.message_id): one for one in batch}
                    fresh = [one for key, one in copies.items() if key not in seen]
                    with contextlib.suppress(PublishRejected):
                        await bus.publish(topic, [Outgoing(letter.message.data, letter.original) for letter in fresh])
                        await look.ack(batch)
                        seen |= copies.keys()
                        done += len(batch)
                    advance(len(batch))
            return done, len(letters)

    done, of = asyncio.run(publish_again())
    click.echo(f"{done} of {of} dead letters are published again")
    if done < of:
        raise FernError(f"the bus rejects {of - done} of them; they stay dead letters.", command="fern dlq ls")


@dlq.command("discard")
@_selection
@yes_option
def discard(yes: bool, **selection: Any) -> None:
    """Give up messages: they never have an effect, even if they are published again. Prints one line for each."""

    async def give_up() -> None:
        async with _find(_wanted(**selection)) as (_, look, letters):
            batches = list(_batches(letters))
            if not yes:
                _print_groups(letters)
                await look.hold(CONFIRM_SECONDS)
                click.confirm(f"Discard these {len(letters)} messages? They will never have an effect.", abort=True)
            with counting("discarding", len(letters)) as advance:
                for _, batch in batches:
                    await asyncio.to_thread(_record, batch)
                    await look.ack(batch)
                    for letter in batch:
                        click.echo(f"discarded {letter.event_id or '(no id)'} {letter.topic} {letter.reason}")
                    advance(len(batch))

    asyncio.run(give_up())


def _record(letters: list[DeadLetter]) -> None:
    """Before the ack: record in the consumers' own databases that a person gave them up."""
    for consumer, service in CONSUMERS.items():
        event_ids = {uuid for one in letters if one.consumer == consumer and (uuid := _uuid(one.event_id))}
        if event_ids:
            body = {"consumer": consumer, "event_ids": sorted(event_ids)}
            call(service, "POST", "/operations/claims/discard", json=body)


def _batches(letters: list[DeadLetter]) -> Iterable[tuple[str, list[DeadLetter]]]:
    """By topic. Raises if there is none."""
    if not letters:
        raise FernError("no dead letter matches these options.", command="fern dlq ls")
    by_topic = defaultdict[str, list[DeadLetter]](list)
    for letter in letters:
        by_topic[letter.topic].append(letter)
    for topic, of_topic in by_topic.items():
        for start in range(0, len(of_topic), BATCH):
            yield topic, of_topic[start : start + BATCH]


def _groups(letters: Iterable[DeadLetter]) -> list[dict[str, Any]]:
    groups = defaultdict[tuple[str, str, str], list[DeadLetter]](list)
    for letter in letters:
        groups[letter.topic, letter.consumer, letter.reason].append(letter)
    return [
        {
            "topic": topic,
            "consumer": consumer,
            "reason": reason,
            "count": len(group),
            "oldest_died_at": min(letter.died_at for letter in group),
            "event_id": group[0].event_id,
        }
        for (topic, consumer, reason), group in sorted(groups.items())
    ]


def _print_groups(letters: Iterable[DeadLetter]) -> None:
    columns = "topic | consumer | reason | messages | dead since | one of them"
    print_table(columns, (group.values() for group in _groups(letters)), empty="no dead letters")


def _facts(letter: DeadLetter) -> dict[str, Any]:
    return {name: getattr(letter, name) for name in ("event_id", "topic", "consumer", "reason", "died_at")}


def _masked(data: bytes) -> Any:
    with contextlib.suppress(ValueError):
        if isinstance(content := json.loads(data), dict):
            return mask_value(content)
    return f"[{len(data)} bytes that are no JSON object]"


def _uuid(text: str) -> str | None:
    with contextlib.suppress(ValueError):
        return str(UUID(text))
    return None

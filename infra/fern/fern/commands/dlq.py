"""`fern dlq`: why messages died, and what to do about them, by group of the same reason.

An event is dead for one consumer. `redrive` publishes it to its topic again, where everyone who has handled it before ignores
it; then it is acked, and a crash in between only doubles it. `discard` first leaves a claim with the status DISCARDED in the
consumer's database, then acks: the event is given up for good, a replay does not bring it back, and the audit knows why it had
no effect.
"""

import asyncio
import contextlib
import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import click
from rich.table import Table

from fern.client import APIS, call, counting
from fern.dead_letters import BY_US, MOST, SUFFIX, DeadLetter, Look, open_bus
from fern.errors import FernError
from fern.runtime.progress import make_console
from fern.topology import Declared
from messaging.bus import Outgoing
from messaging.errors import PublishRejected
from servicekit.logs import mask_value

AT_ONCE = 100  # messages settled in one go
PATIENCE_SECONDS = 600  # for the answer to a question; the longest lease there is


@dataclass(frozen=True, slots=True)
class Selection:
    event: UUID | None
    reason: str | None
    type: str | None
    consumer: str | None
    all: bool

    def has(self, letter: DeadLetter) -> bool:
        return (
            self.event in (None, _uuid(letter.event_id))
            and self.reason in (None, letter.reason)
            and self.type in (None, letter.topic)
            and self.consumer in (None, letter.consumer)
        )

    async def find(self, look: Look) -> list[DeadLetter]:
        """All of them, before anything is done: what is redriven and dies again must not be met again."""
        found = list[DeadLetter]()
        with counting("looking at dead letters") as advance:
            async for batch in look.batches():
                advance(len(batch))
                found += [letter for letter in batch if self.has(letter)]
        if look.is_full:
            click.echo(f"more than {MOST} dead letters: what follows is not all, come again afterwards", err=True)
        return found


def _selecting(command: Callable[..., None]) -> Callable[..., None]:
    """The options that choose dead letters, as one argument `selection`."""

    @functools.wraps(command)
    def selected(
        event: UUID | None, reason: str | None, type: str | None, consumer: str | None, all: bool, **others: Any
    ) -> None:
        selection = Selection(event, reason, type, consumer, all)
        if not (event or reason or type or consumer or all):
            raise FernError(
                "say which dead letters: --event, --reason, --type, --consumer, or --all.", command="fern dlq ls"
            )
        if type and f"{type}{SUFFIX}" not in Declared.load().topics:
            raise FernError(f"there is no topic {type!r}.", command="fern topology show")
        command(selection, **others)

    decorated: Callable[..., None] = selected
    for option in (
        click.option("--all", is_flag=True, help="Every dead letter."),
        click.option("--consumer", help="Those that this service could not handle."),
        click.option("--type", help="Those of this event type."),
        click.option("--reason", help="Those that died of this."),
        click.option("--event", type=click.UUID, help="Those of this event."),
    ):
        decorated = option(decorated)
    return decorated


@click.group()
def dlq() -> None:
    """Dead letters: list, show, redrive, discard. They hold nobody up, and wait on the bus for 31 days."""


@dlq.command("ls")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Single messages in the JSON."
)
@click.option("--json", "as_json", is_flag=True, help="For programs: groups and single messages.")
def list_letters(limit: int, as_json: bool) -> None:
    """Show dead letters by topic, consumer and reason."""

    async def look_at_all() -> list[DeadLetter]:
        async with open_bus() as bus, Look(bus) as look:
            return await Selection(None, None, None, None, True).find(look)

    letters = asyncio.run(look_at_all())
    if as_json:
        click.echo(
            json.dumps({"groups": _groups(letters), "items": [_facts(one) for one in letters[:limit]]}, indent=2)
        )
    else:
        make_console().print(_table(letters) if letters else "no dead letters")


@dlq.command("show")
@_selecting
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def show(selection: Selection, limit: int, as_json: bool) -> None:
    """Show why messages died, and what is in them, without names, numbers and texts of people."""

    async def look_at_some() -> list[DeadLetter]:
        async with open_bus() as bus, Look(bus, [selection.type] if selection.type else ()) as look:
            return await selection.find(look)

    letters = asyncio.run(look_at_some())
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
        click.echo(json.dumps({"items": shown}, indent=2))
        return
    for item in shown:
        click.echo("\n".join(f"{name:>10}  {_line(value)}" for name, value in item.items()) + "\n")
    click.echo(f"{len(shown)} of {len(letters)} dead letters")


@dlq.command("redrive")
@_selecting
def redrive(selection: Selection) -> None:
    """Publish messages to their topics again. Whoever has handled one before ignores it."""

    async def publish_again() -> tuple[int, int]:
        async with open_bus() as bus, Look(bus, [selection.type] if selection.type else ()) as look:
            letters, done = _some(await selection.find(look)), 0
            with counting("redriving", len(letters)) as advance:
                for topic, part in _parts(letters):
                    with contextlib.suppress(PublishRejected):
                        await bus.publish(topic, [Outgoing(one.message.data, one.original) for one in part])
                        await look.ack(part)
                        done += len(part)
                    advance(len(part))
            return done, len(letters)

    done, of = asyncio.run(publish_again())
    click.echo(f"{done} of {of} dead letters are on their way again")
    if done < of:
        raise FernError(f"the bus does not take {of - done} of them; they stay where they were.", command="fern dlq ls")


@dlq.command("discard")
@_selecting
@click.option("--yes", is_flag=True, help="Do not ask.")
def discard(selection: Selection, yes: bool) -> None:
    """Give messages up for good: they will have no effect, whoever publishes them again. Says which, one a line."""

    async def give_up() -> None:
        async with open_bus() as bus, Look(bus, [selection.type] if selection.type else ()) as look:
            letters = _some(await selection.find(look))
            if not yes:
                make_console().print(_table(letters))
                await look.hold(PATIENCE_SECONDS)
                click.confirm(f"Discard these {len(letters)} messages? They will never have an effect.", abort=True)
            with counting("discarding", len(letters)) as advance:
                for _, part in _parts(letters):
                    await asyncio.to_thread(_record, part)
                    await look.ack(part)
                    for letter in part:
                        click.echo(f"discarded {letter.event_id or '(no id)'} {letter.topic} {letter.reason}")
                    advance(len(part))

    asyncio.run(give_up())


def _record(letters: Iterable[DeadLetter]) -> None:
    """Before the ack: the consumer's own database says that a person gave them up."""
    given_up = defaultdict[str, set[str]](set)
    for letter in letters:
        if letter.consumer in APIS and (event_id := _uuid(letter.event_id)):
            given_up[letter.consumer].add(str(event_id))
    for consumer, event_ids in given_up.items():
        body = {"consumer": consumer, "event_ids": sorted(event_ids)}
        call(APIS[consumer], "POST", "/operations/claims/discard", json=body)


def _some(letters: list[DeadLetter]) -> list[DeadLetter]:
    if not letters:
        raise FernError("there is no such dead letter.", command="fern dlq ls")
    return letters


def _parts(letters: Iterable[DeadLetter]) -> Iterable[tuple[str, list[DeadLetter]]]:
    """By topic, and not too many at once."""
    by_topic = defaultdict[str, list[DeadLetter]](list)
    for letter in letters:
        by_topic[letter.topic].append(letter)
    for topic, of_topic in by_topic.items():
        for start in range(0, len(of_topic), AT_ONCE):
            yield topic, of_topic[start : start + AT_ONCE]


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


def _table(letters: Iterable[DeadLetter]) -> Table:
    table = Table("topic", "consumer", "reason", "messages", "dead since", "one of them", box=None, pad_edge=False)
    for group in _groups(letters):
        table.add_row(*(str(value) for value in group.values()))
    return table


def _facts(letter: DeadLetter) -> dict[str, Any]:
    return {
        "event_id": letter.event_id,
        "topic": letter.topic,
        "consumer": letter.consumer,
        "reason": letter.reason,
        "died_at": letter.died_at,
    }


def _masked(data: bytes) -> Any:
    try:
        content = json.loads(data)
    except ValueError:
        content = None
    return mask_value(content) if isinstance(content, dict) else f"[{len(data)} bytes that are no JSON object]"


def _line(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _uuid(text: str) -> UUID | None:
    with contextlib.suppress(ValueError):
        return UUID(text)
    return None

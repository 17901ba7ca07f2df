"""`fern replay`: publishes events of the outbox again, after saying what that would do.

A replay makes published rows due again, in the order of their positions; the relay publishes them as any others. Whoever has a
claim on an event ignores it, so a replay has an effect only where there was none. Parked, discarded and unpublished rows are
left alone, and events older than the replay horizon are refused: whether they had their effect may be forgotten.
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import click

from fern.client import APIS, Refused, call, counting, in_batches
from fern.errors import FernError
from fern.topology import Declared

ASKED_AT_ONCE = 200  # events whose claims are looked up in one call
SHOWN = 20  # events without effect that are named; in JSON a thousand
PATIENCE_SECONDS = 60.0  # for the relay, and then again for the consumers, without any progress
_AGO = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(slots=True)
class Effect:
    """What a replay means for the events of one type and one consumer; without a consumer, nobody is interested."""

    service: str
    type: str
    consumer: str | None
    events: int = 0
    done: int = 0
    discarded: int = 0
    missing: list[str] = field(default_factory=list)

    def line(self) -> str:
        if self.consumer is None:
            return f"{self.type} → nobody consumes it: {self.events} events, no effect"
        given_up = f", {self.discarded} given up by a person" if self.discarded else ""
        return (
            f"{self.type} → {self.consumer}: {self.done} already done{given_up}, "
            f"{len(self.missing)} would be handled now"
        )


class Moment(click.ParamType[datetime]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if ago := _AGO.fullmatch(value):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither a time like 2031-05-20T14:30 (UTC) nor a while ago like 30m, 2h or 3d")
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@click.command()
@click.option("--service", type=click.Choice(list(APIS)), help="Events of one service only.")
@click.option(
    "--since", type=Moment(), help="Events from this time on: 2031-05-20T14:30 (UTC), or 2h for two hours ago."
)
@click.option("--until", type=Moment(), help="Events before this time. [default: now]")
@click.option("--labour", "labour_id", type=click.UUID, help="Events of this labour.")
@click.option("--type", "event_type", help="Events of this type.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="For programs; asks nothing.")
def replay(
    service: str | None,
    since: datetime | None,
    until: datetime | None,
    labour_id: UUID | None,
    event_type: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Publish events again, by time, labour or type. Says first which would have an effect and which had it already."""
    if not (since or until or labour_id or event_type):
        raise FernError(
            "say which events: --since, --until, --labour or --type.", command="fern replay --since 1h --dry-run"
        )
    wanted = {
        "since": since.isoformat() if since else None,
        "until": (until or datetime.now(UTC)).isoformat(),  # what is published from now on needs no replay
        "ordering_key": str(labour_id) if labour_id else None,
        "type": event_type,
    }
    services = [service] if service else list(APIS)
    before = _effects(services, wanted)
    events = sum({(effect.service, effect.type): effect.events for effect in before}.values())
    if not as_json:
        _print(before)
    if dry_run or not events:
        click.echo(_json(before) if as_json else f"{events} events would be published again")
        return
    if not (yes or as_json):
        click.confirm(f"Publish these {events} events again?", abort=True)
    replayed = _replay(services, wanted, events)
    _until_published(services, replayed)
    after = _until_handled(before)
    if as_json:
        click.echo(_json(before, replayed=replayed, not_handled=after))
        return
    handled = sum(len(effect.missing) for effect in before) - len(after)
    click.echo(f"{replayed} events are published again; {handled} had their effect now, {len(after)} not yet")
    if after:
        raise FernError(f"not handled yet: {', '.join(after[:SHOWN])}", command="fern dlq ls")


def _effects(services: list[str], wanted: dict[str, Any]) -> list[Effect]:
    consumers = _consumers()
    effects = dict[tuple[str, str, str | None], Effect]()
    with counting("looking at events") as advance:
        for service in services:
            for batch in _batches(service, {**wanted, "dry_run": True}):
                by_type: dict[str, list[str]] = {}
                for event in batch:
                    by_type.setdefault(event["type"], []).append(event["event_id"])
                for type, event_ids in by_type.items():
                    for consumer in consumers.get(type, [None]):
                        effect = effects.setdefault((service, type, consumer), Effect(service, type, consumer))
                        effect.events += len(event_ids)
                        if consumer:
                            claims = _claims(consumer, event_ids)
                            effect.discarded += sum(status == "DISCARDED" for status in claims.values())
                            effect.done += sum(status == "COMPLETED" for status in claims.values())
                            effect.missing += [event_id for event_id in event_ids if event_id not in claims]
                advance(len(batch))
    return list(effects.values())


def _consumers() -> dict[str, list[str | None]]:
    """Who consumes which topic, as declared."""
    consumers: dict[str, list[str | None]] = {}
    for name, (topic, dead) in Declared.load().subscriptions.items():
        if dead:
            consumers.setdefault(topic, []).append(name.partition(".")[0])
    return consumers


def _claims(consumer: str, event_ids: list[str]) -> dict[str, str]:
    """The status of each event that the consumer has claimed."""
    found: dict[str, str] = {}
    for start in range(0, len(event_ids), ASKED_AT_ONCE):
        asked = {"event_id": event_ids[start : start + ASKED_AT_ONCE]}
        rows = call(APIS[consumer], "GET", "/operations/claims", params=asked)["items"]
        found |= {row["event_id"]: row["status"] for row in rows if row["consumer"] == consumer}
    return found


def _batches(service: str, wanted: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    try:
        yield from in_batches(APIS[service], "/operations/outbox/replay", wanted)
    except Refused as refused:
        if oldest := refused.problem.get("oldest"):
            raise FernError(
                f"{service}: {refused.message}", command=f"fern replay --since {oldest} --dry-run"
            ) from None
        raise


def _replay(services: list[str], wanted: dict[str, Any], events: int) -> int:
    replayed = 0
    with counting("making events due again", events) as advance:
        for service in services:
            for batch in _batches(service, wanted):
                replayed += len(batch)
                advance(len(batch))
    return replayed


def _until_published(services: list[str], replayed: int) -> None:
    def waiting() -> int:
        counts = [call(APIS[service], "GET", "/operations/outbox/replay") for service in services]
        if parked := sum(count["parked"] for count in counts):
            raise FernError(f"the bus refuses {parked} of them; they are parked.", command="fern outbox ls --parked")
        return sum(count["waiting"] for count in counts)

    with counting("publishing again", replayed) as advance:
        left, told = replayed, 0
        for left in _changes(waiting):
            advance(max(replayed - left, told) - told)
            told = max(replayed - left, told)
    if left:
        raise FernError(f"{left} replayed events still wait for the relay; they will go.", command="fern status")


def _until_handled(before: list[Effect]) -> list[str]:
    """Waits for the effects that were missing. Returns the events that still have none."""
    missing = {effect.consumer: list(effect.missing) for effect in before if effect.consumer and effect.missing}

    def without_effect() -> int:
        for consumer, event_ids in missing.items():
            claims = _claims(consumer, event_ids)
            missing[consumer] = [event_id for event_id in event_ids if event_id not in claims]
        return sum(map(len, missing.values()))

    with counting("waiting for effects", sum(map(len, missing.values()))):
        for _ in _changes(without_effect, seconds=10.0):
            pass
    return [event_id for event_ids in missing.values() for event_id in event_ids]


def _changes(count: Any, seconds: float = PATIENCE_SECONDS) -> Iterator[int]:
    """How much is left, again and again, until nothing is, or nothing has moved for so long."""
    least, deadline = None, time.monotonic() + seconds
    while True:
        left: int = count()
        yield left
        if least is None or left < least:
            least, deadline = left, time.monotonic() + seconds
        if not left or time.monotonic() > deadline:
            return
        time.sleep(0.2)


def _print(effects: list[Effect]) -> None:
    for effect in effects:
        click.echo(effect.line())
        for event_id in effect.missing[:SHOWN]:
            click.echo(f"    {event_id}")
        if len(effect.missing) > SHOWN:
            click.echo(f"    … and {len(effect.missing) - SHOWN} more")


def _json(effects: list[Effect], **outcome: Any) -> str:
    shown = [
        {**asdict(effect), "missing": effect.missing[:1000], "would_be_handled": len(effect.missing)}
        for effect in effects
    ]
    return json.dumps({"effects": shown, **outcome}, indent=2)

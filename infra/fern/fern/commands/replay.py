"""`fern replay`: publishes events of the outbox again, after showing the effect.

A replay makes published rows due again, in the order of their positions, and the relay publishes them. A consumer with a claim on
an event ignores it, so a replay has an effect only where there was none. Parked, discarded and unpublished rows stay as they are.
Events older than the replay horizon are refused: their claims may have been deleted.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from fern.client import RequestRefused, call, claims, in_batches
from fern.errors import FernError
from fern.output import counting, json_option, print_json, yes_option
from fern.settings import CONSUMERS, SERVICES
from fern.topology import Declared

SHOWN = 20  # events without effect that are printed; in JSON 1000
RELAY_SECONDS, CONSUMER_SECONDS = 60.0, 30.0  # without any progress, after which the command stops waiting
_AGO = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(slots=True)
class Effect:
    """What a replay means for the events of one type and one consumer; `consumer` is None if no consumer takes the type."""

    service: str
    type: str
    consumer: str | None
    events: int = 0
    done: int = 0
    discarded: int = 0
    missing: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.consumer is None:
            return f"{self.type} → no consumer: {self.events} events, no effect"
        given_up = f", {self.discarded} discarded" if self.discarded else ""
        handled = f"{len(self.missing)} would be handled now"
        return f"{self.type} → {self.consumer}: {self.done} already done{given_up}, {handled}"


class Moment(click.ParamType[str]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ago := _AGO.fullmatch(value):
            return (datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).isoformat()
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither a time like 2031-05-20T14:30 (UTC) nor a duration like 30m, 2h or 3d")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


@click.command()
@click.option("--service", type=click.Choice(SERVICES), help="Events of one service only.")
@click.option(
    "--since", type=Moment(), help="Events from this time on: 2031-05-20T14:30 (UTC), or 2h for two hours ago."
)
@click.option("--until", type=Moment(), help="Events before this time. [default: now]")
@click.option("--labour", "ordering_key", type=click.UUID, help="Events of this labour.")
@click.option("--type", help="Events of this type.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@yes_option
@json_option
def replay(service: str | None, dry_run: bool, yes: bool, as_json: bool, **selection: Any) -> None:
    """Publish events again, by time, labour or type.

    Shows first which events would have an effect and which have had it already. With --json it does not ask.
    """
    wanted = {name: str(value) for name, value in selection.items() if value}
    if not wanted:
        what = "no events are named: give --since, --until, --labour or --type."
        raise FernError(what, command="fern replay --since 1h --dry-run")
    wanted.setdefault("until", datetime.now(UTC).isoformat())  # what is published from now on needs no replay
    services = [service] if service else list(SERVICES)
    before = _effects(services, wanted)
    events = sum({(effect.service, effect.type): effect.events for effect in before}.values())
    if not as_json:
        _print(before)
    if dry_run or not events:
        if as_json:
            print_json({"effects": _shown(before)})
        else:
            click.echo(f"{events} events would be published again")
        return
    if not (yes or as_json):
        click.confirm(f"Publish these {events} events again?", abort=True)
    replayed = _replay(services, wanted, events)
    _wait_for_relays(services, replayed)
    after = _wait_for_consumers(before)
    if as_json:
        print_json({"effects": _shown(before), "replayed": replayed, "not_handled": after})
        return
    handled = sum(len(effect.missing) for effect in before) - len(after)
    click.echo(f"{replayed} events are published again; {handled} had their effect now, {len(after)} not yet")
    if after:
        raise FernError(f"not handled yet: {', '.join(after[:SHOWN])}", command="fern dlq ls")


def _effects(services: list[str], wanted: dict[str, Any]) -> list[Effect]:
    consumers = Declared.load().consumers()
    effects = dict[tuple[str, str, str | None], Effect]()
    with counting("looking at events") as advance:
        for service, batch in _batches(services, {**wanted, "dry_run": True}):
            for type in dict.fromkeys(event["type"] for event in batch):
                event_ids = [event["event_id"] for event in batch if event["type"] == type]
                for consumer in [*consumers.get(type, ())] or [None]:
                    effect = effects.setdefault((service, type, consumer), Effect(service, type, consumer))
                    effect.events += len(event_ids)
                    if consumer:
                        claimed = _claimed(consumer, event_ids)
                        effect.discarded += sum(status == "DISCARDED" for status in claimed.values())
                        effect.done += sum(status == "COMPLETED" for status in claimed.values())
                        effect.missing += [event_id for event_id in event_ids if event_id not in claimed]
            advance(len(batch))
    return list(effects.values())


def _claimed(consumer: str, event_ids: list[str]) -> dict[str, str]:
    """The status of each event that the consumer has claimed."""
    rows = claims(CONSUMERS[consumer], event_ids)
    return {row["event_id"]: row["status"] for row in rows if row["consumer"] == consumer}


def _batches(services: list[str], wanted: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for service in services:
        try:
            for batch in in_batches(service, "/operations/outbox/replay", wanted):
                yield service, batch
        except RequestRefused as refused:
            if not (oldest := refused.problem.get("oldest")):
                raise
            retry = f"fern replay --since {oldest} --dry-run"
            raise FernError(f"{service}: {refused.message}", command=retry) from None


def _replay(services: list[str], wanted: dict[str, Any], events: int) -> int:
    replayed = 0
    with counting("making events due again", events) as advance:
        for _, batch in _batches(services, wanted):
            replayed += len(batch)
            advance(len(batch))
    return replayed


def _wait_for_relays(services: list[str], replayed: int) -> None:
    def waiting() -> int:
        counts = [call(service, "GET", "/operations/outbox/replay") for service in services]
        if parked := sum(count["parked"] for count in counts):
            raise FernError(f"the bus rejects {parked} of them; they are parked.", command="fern outbox ls --parked")
        return sum(count["waiting"] for count in counts)

    if left := _wait("publishing again", replayed, waiting, RELAY_SECONDS):
        what = f"{left} replayed events still wait for the relay, which will publish them once it runs."
        raise FernError(what, command="fern status")


def _wait_for_consumers(before: list[Effect]) -> list[str]:
    """Wait for the effects that were missing. Returns the events that still have none."""
    missing = {effect.consumer: list(effect.missing) for effect in before if effect.consumer and effect.missing}

    def without_effect() -> int:
        for consumer, event_ids in missing.items():
            claimed = _claimed(consumer, event_ids)
            missing[consumer] = [event_id for event_id in event_ids if event_id not in claimed]
        return sum(map(len, missing.values()))

    _wait("waiting for effects", sum(map(len, missing.values())), without_effect, CONSUMER_SECONDS)
    return [event_id for event_ids in missing.values() for event_id in event_ids]


def _wait(title: str, total: int, count: Callable[[], int], seconds: float) -> int:
    """Wait until `count` returns 0, or has not decreased for `seconds`. Returns how many are left."""
    least, deadline = total, time.monotonic() + seconds
    with counting(title, total) as advance:
        while (left := count()) and time.monotonic() < deadline:
            if left < least:
                advance(least - left)
                least, deadline = left, time.monotonic() + seconds
            time.sleep(0.2)
    return left


def _print(effects: list[Effect]) -> None:
    for effect in effects:
        click.echo(str(effect))
        for event_id in effect.missing[:SHOWN]:
            click.echo(f"    {event_id}")
        if len(effect.missing) > SHOWN:
            click.echo(f"    … and {len(effect.missing) - SHOWN} more")


def _shown(effects: list[Effect]) -> list[dict[str, Any]]:
    return [
        {**asdict(effect), "missing": effect.missing[:1000], "would_be_handled": len(effect.missing)}
        for effect in effects
    ]

"""What goes wrong, and for which labour: a list of deliveries, drawn from the seed before anything runs, for every design.

Each misfortune has labours of its own, and hits about half of them.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

from e2e.experiments.quest.deltas.design import Event

CONTRACTIONS = 4  # of each labour
RATE = 0.5  # the share of labours that a misfortune hits
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Delivery:
    """`race`: two workers get the event at the same time. `crash`: the first worker dies; then the event is delivered again."""

    event: Event
    race: bool = False
    crash: bool = False


@dataclass(slots=True)
class Plan:
    """`hit` are the labours that the misfortune hits. `replayed` is delivered after the design has forgotten what it can.

    A labour in `without_row` has no row in `total` when its first event arrives; all others have one.
    """

    labours: list[UUID]
    hit: list[UUID]
    deliveries: list[Delivery]
    without_row: list[UUID] = field(default_factory=list)
    replayed: list[Delivery] = field(default_factory=list)

    def places(self, labour_id: UUID) -> list[int]:
        """Where the deliveries of this labour are in the list."""
        return [place for place, one in enumerate(self.deliveries) if one.event.labour_id == labour_id]

    def truth(self) -> dict[UUID, tuple[int, int]]:
        """Count and seconds of each labour: every event once."""
        sums: dict[UUID, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for event in {delivery.event for delivery in self.deliveries}:
            count, seconds = sums[event.labour_id]
            sums[event.labour_id] = count + event.count, seconds + event.seconds
        return sums


def nothing(plan: Plan, draw: random.Random) -> None:
    """every event is delivered once and in order"""


def duplicate(plan: Plan, draw: random.Random) -> None:
    """the acknowledgement is lost, and the event is delivered again later"""
    for labour_id in plan.hit:
        place = draw.choice(plan.places(labour_id))
        plan.deliveries.insert(draw.randint(place + 1, len(plan.deliveries)), plan.deliveries[place])


def race(plan: Plan, draw: random.Random) -> None:
    """two workers get the event, and both have checked it before either writes"""
    for labour_id in plan.hit:
        place = draw.choice(plan.places(labour_id))
        plan.deliveries[place] = replace(plan.deliveries[place], race=True)


def reordering(plan: Plan, draw: random.Random) -> None:
    """two successive events of a labour arrive in the opposite order"""
    for labour_id in plan.hit:
        places = plan.places(labour_id)
        number = draw.randrange(len(places) - 1)
        a, b = places[number], places[number + 1]
        plan.deliveries[a], plan.deliveries[b] = plan.deliveries[b], plan.deliveries[a]


def crash(plan: Plan, draw: random.Random) -> None:
    """a worker dies between the record of the event and the effect, and the event is delivered again"""
    for labour_id in plan.hit:
        place = draw.choice(plan.places(labour_id))
        plan.deliveries[place] = replace(plan.deliveries[place], crash=True)


def no_row(plan: Plan, draw: random.Random) -> None:
    """the first event of a labour arrives before there is a row to update"""
    plan.without_row = plan.hit


def same_time(plan: Plan, draw: random.Random) -> None:
    """two events of a labour have the same time"""
    for labour_id in plan.hit:
        places = plan.places(labour_id)
        number = draw.randrange(len(places) - 1)
        first, second = (plan.deliveries[place].event for place in places[number : number + 2])
        plan.deliveries[places[number + 1]] = Delivery(replace(second, time=first.time))


def correction(plan: Plan, draw: random.Random) -> None:
    """a later event says that a contraction was longer"""
    for labour_id in plan.hit:
        events = [plan.deliveries[place].event for place in plan.places(labour_id)]
        last = plan.deliveries[-1].event
        corrected = replace(
            draw.choice(events),
            id=uuid7(),
            sequence=len(events) + 1,
            position=last.position + 1,
            time=last.time + MINUTE,
            count=0,
            seconds=draw.randint(5, 30),
        )
        plan.deliveries.append(Delivery(corrected))


def replay(plan: Plan, draw: random.Random) -> None:
    """all events of a labour are replayed after retention or TTL has deleted what they delete"""
    plan.replayed = [one for one in plan.deliveries if one.event.labour_id in plan.hit]


Misfortune = Callable[[Plan, random.Random], None]
MISFORTUNES: dict[str, Misfortune] = {
    "nothing": nothing,
    "duplicate": duplicate,
    "race": race,
    "reordering": reordering,
    "crash": crash,
    "no row": no_row,
    "same time": same_time,
    "correction": correction,
    "replay": replay,
}


def meanings() -> dict[str, str]:
    return {name: " ".join((strike.__doc__ or "").split()) for name, strike in MISFORTUNES.items()}


def draw_plans(seed: int, labours: int) -> dict[str, Plan]:
    """A plan for each misfortune, by its name. Positions and times increase from plan to plan."""
    plans, position = dict[str, Plan](), 0
    for name, strike in MISFORTUNES.items():
        draw = random.Random(f"{seed}/{name}")
        plans[name] = plan = _draw_plan(draw, labours, position)
        strike(plan, draw)
        position += 2 * len(plan.deliveries)  # more than a misfortune can add
    return plans


def _draw_plan(draw: random.Random, labours: int, position: int) -> Plan:
    """The contractions of all labours take turns."""
    ids, deliveries = [uuid7() for _ in range(labours)], list[Delivery]()
    for sequence in range(1, CONTRACTIONS + 1):
        for labour_id in draw.sample(ids, labours):
            position += 1
            time = datetime(2026, 1, 1, tzinfo=UTC) + position * MINUTE
            event = Event(uuid7(), labour_id, sequence, position, time, uuid7(), 1, draw.randint(30, 90))
            deliveries.append(Delivery(event))
    return Plan(ids, [labour_id for labour_id in ids if draw.random() < RATE], deliveries)

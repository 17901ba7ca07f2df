"""The schedule of faults: a pure function of seed, profile and processes, so that a seed repeats it.

A lane has one fault after the other; the lanes overlap. A lane takes its kinds in turn, and the targets of a kind are dealt from
a shuffled deck, so that each one is hit before any is hit again.

Durations and rates stay within what docs/guarantees.md promises. `LEFT_OUT` names what it excludes.
"""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, get_args

from notification.domain.reactions import TOPICS

# Settings of the dispatcher during the run, in seconds. An SMS counts as absent after lease and quarantine, at the earliest.
LEASE, TIMEOUT, QUARANTINE = 3.0, 1.5, 8.0

LEFT_OUT = {
    "a provider that hides a message for longer than the quarantine": "asking it cannot help, and a text may come twice",
    "a dispatcher frozen for longer than lease and quarantine between its check of the clock and the request": (
        "the request goes out after another dispatcher has sent the text. Long freezes of a dispatcher therefore begin while no "
        "message is SENDING; short ones begin at any moment"
    ),
    "a lost disk": "what PostgreSQL and the bus have confirmed must stay stored",
}

FaultKind = Literal[
    "kill", "freeze", "database", "cut", "bus", "sms", "poison", "silence", "read-only", "full-disk", "lock", "connections",
    "overload", "poison-burst", "long-freeze", "clock",
]  # fmt: skip
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

# The faults of a lane follow one another. Two outages of the database at once would only be one.
OUTAGES: tuple[FaultKind, ...] = ("silence", "read-only", "full-disk", "lock", "connections")
BURSTS: tuple[FaultKind, ...] = ("overload", "poison-burst")
LANES = (OUTAGES, *((kind,) for kind in KINDS if kind not in OUTAGES))


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A fault that starts `at` seconds after the beginning of the run and lasts `seconds`. `options` depend on the kind."""

    at: float
    kind: FaultKind
    target: str
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """How long faults are injected, and how large they are.

    outages    factor of the durations of outages of the database
    calm       factor of the pauses between them
    pauses     factor of the pauses between all other faults, except for bursts
    poison     messages of one burst; `fern chaos` can hold 10,000 dead letters when it takes the account
    pause      seconds between two bursts, at least; at most twice that
    clients    of an overload
    """

    seconds: float
    outages: float = 1.0
    calm: float = 1.0
    pauses: float = 1.0
    poison: int = 500
    pause: float = 15.0
    clients: int = 200


PROFILES = {
    "ci": Profile(seconds=20, outages=0.2, calm=0.2, poison=200, pause=2.0, clients=60),
    "default": Profile(seconds=120, outages=0.5),
    "night": Profile(seconds=3600, calm=3.0, poison=2000, pause=900.0, clients=400),
}

BUS_FAULTS: dict[str, dict[str, Any]] = {
    "duplicate": {"rate": 0.5},
    "delay": {"rate": 0.5, "seconds": 2},
    "reorder": {},
    "forget-acks": {"rate": 0.5},
    "refuse-publish": {"rate": 0.5},
    "hang": {"rate": 0.5},
    "drop-streams": {"rate": 0.3},
}
SMS_FAULTS: dict[str, dict[str, Any]] = {
    "request-lost": {"rate": 0.5},
    "rate-limited": {"rate": 0.5},
    "refused": {"rate": 0.05, "code": 21614},
    "created-late": {"rate": 0.5, "seconds": 1},
    "reply-lost": {"rate": 0.5},
    "created-500": {"rate": 0.5},
    "slow": {"rate": 0.5, "seconds": 2 * TIMEOUT},
    "list-lag": {"rate": 1, "seconds": 1},
    "undelivered": {"rate": 0.2},
    "callbacks-lost": {"rate": 0.5},
    "callbacks-doubled": {"rate": 0.5},
    "callbacks-reordered": {"rate": 0.5},
}
LOCKED = ("labour.outbox", "labour.labour", "notification.outbox", "notification.notification")  # database.table
HOUR, DAY = 3600.0, 86400.0
CLOCK_OFFSETS = (-2 * HOUR, 2 * HOUR, -120 * DAY, 120 * DAY)
NOT_OURS = ("pubsub", "sms-sandbox")  # they stand in for services with their own clock

# Of each kind: the range of seconds between two faults, and the range of their durations in seconds.
_AT_ONCE = (0.0, 0.0)
TIMES: dict[FaultKind, tuple[tuple[float, float], tuple[float, float]]] = {
    "kill": ((1.0, 3.0), (0.1, 1.0)),
    "freeze": ((0.5, 2.0), (1.0, 6.0)),
    "database": ((4.0, 12.0), (0.1, 1.5)),
    "cut": ((1.0, 4.0), _AT_ONCE),
    "bus": ((0.2, 1.5), (1.0, 4.0)),
    "sms": ((0.2, 1.0), (1.0, 3.0)),
    "poison": ((2.0, 6.0), _AT_ONCE),
    "silence": ((4.0, 8.0), _AT_ONCE),
    "read-only": ((4.0, 8.0), (5.0, 20.0)),
    "full-disk": ((4.0, 8.0), (4.0, 12.0)),
    "lock": ((4.0, 8.0), (4.0, 12.0)),
    "connections": ((4.0, 8.0), (5.0, 20.0)),
    "overload": ((1.0, 2.0), (1.0, 3.0)),
    "poison-burst": ((1.0, 2.0), _AT_ONCE),
    "long-freeze": ((0.5, 3.0), (LEASE + QUARANTINE + 1.0, LEASE + QUARANTINE + 4.0)),
    "clock": ((2.0, 8.0), (2.0, 6.0)),
}
# A frozen dispatcher, then a frozen provider, then a text created late: together well within lease and quarantine.
SHORTER_FREEZES = {"notification-dispatcher": (1.0, LEASE + 1.0), "sms-sandbox": (0.3, 1.5)}


def schedule(
    seed: int, profile: Profile, processes: Sequence[str], kinds: Collection[FaultKind] = KINDS
) -> list[ScheduledFault]:
    """The faults of these kinds in the order of their start; all end within the profile's time."""
    lanes = [[kind for kind in lane if kind in kinds] for lane in LANES]
    actions = [action for lane in lanes if lane for action in _lane(lane, seed, profile, processes)]
    return sorted(actions, key=lambda action: (action.at, action.kind))


def one_at_a_time(
    seed: int, rounds: int, processes: Sequence[str], kinds: Collection[FaultKind] = KINDS
) -> list[ScheduledFault]:
    """`rounds` faults of each kind, in a random order, all with `at` 0: each one begins when the one before is over."""
    profile = PROFILES["default"]
    faults = [
        fault for kind in KINDS if kind in kinds for fault in islice(_faults(kind, seed, profile, processes), rounds)
    ]
    return [fault for _, _, fault in random.Random(f"{seed}/order").sample(faults, len(faults))]


def _lane(
    kinds: Sequence[FaultKind], seed: int, profile: Profile, processes: Sequence[str]
) -> Iterator[ScheduledFault]:
    order = random.Random(f"{seed}/{'+'.join(kinds)}").sample(kinds, len(kinds))
    each = [_faults(kind, seed, profile, processes) for kind in order]
    now = 0.0
    while True:
        for faults in each:
            pause, seconds, fault = next(faults)
            begin, now = now + pause, now + pause + seconds
            if now > profile.seconds:
                return
            yield ScheduledFault(round(begin, 2), fault.kind, fault.target, fault.seconds, fault.options)


def _faults(
    kind: FaultKind, seed: int, profile: Profile, processes: Sequence[str]
) -> Iterator[tuple[float, float, ScheduledFault]]:
    """Yield faults without end, each with the pause before it and its duration."""
    draw = random.Random(f"{seed}/{kind}")
    pauses, durations = TIMES[kind]
    longer, calm = (profile.outages, profile.calm) if kind in OUTAGES else (1.0, profile.pauses)
    for target in _dealt(_deck(kind, processes), draw):
        pause = draw.uniform(*pauses) * (profile.pause if kind in BURSTS else calm)
        shorter = SHORTER_FREEZES.get(target.removesuffix("-2")) if kind == "freeze" else None
        seconds = draw.uniform(*(shorter or durations)) * longer
        fault = ScheduledFault(0.0, kind, target, round(seconds, 2), _options(kind, target, profile, draw))
        yield pause, seconds, fault


def _deck(kind: FaultKind, processes: Sequence[str]) -> Sequence[str]:
    match kind:
        case "kill" | "freeze":
            return processes
        case "long-freeze":
            return [name for name in processes if name != "sms-sandbox"]
        case "clock":
            return [name for name in processes if name not in NOT_OURS]
        case "database":
            return ("fast", "immediate")
        case "cut" | "silence" | "connections":
            return ("labour", "notification")
        case "read-only" | "full-disk":
            return ("postgres",)
        case "lock":
            return LOCKED
        case "bus":
            return list(BUS_FAULTS)
        case "sms":
            return list(SMS_FAULTS)
        case "poison" | "poison-burst":
            return TOPICS
        case "overload":
            return [name for name in processes if name.startswith("labour-api")]


def _dealt(deck: Sequence[str], draw: random.Random) -> Iterator[str]:
    while True:
        yield from draw.sample(deck, len(deck))


def _options(kind: FaultKind, target: str, profile: Profile, draw: random.Random) -> dict[str, Any]:
    match kind:
        case "cut":
            return {"share": draw.choice((0.3, 1.0))}
        case "bus":
            return BUS_FAULTS[target]
        case "sms":  # the sandbox draws for each phone, from this seed
            return {**SMS_FAULTS[target], "seed": draw.randrange(2**32)}
        case "connections":
            return {"limit": draw.choice((1, 4))}  # connections of the role
        case "poison-burst":
            return {"messages": profile.poison}
        case "overload":
            return {"clients": profile.clients}
        case "clock":
            return {"offset": draw.choice(CLOCK_OFFSETS)}
        case _:
            return {}

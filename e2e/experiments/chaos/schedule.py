"""The schedule of faults: a pure function of seed, duration and processes, so that a seed repeats it.

Faults of different kinds overlap; within a kind they follow one another. The targets of a kind are dealt from a shuffled deck,
so that each one is hit before any is hit again.

Durations and rates stay within what docs/guarantees.md promises. `LEFT_OUT` names what it excludes.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from notification.domain.reactions import TOPICS

# Settings of the dispatcher during the run, in seconds. An SMS counts as absent after lease and quarantine, at the earliest.
LEASE, TIMEOUT, QUARANTINE = 3.0, 1.5, 8.0

LEFT_OUT = {
    "a provider that hides a message for longer than the quarantine": "asking it cannot help, and a text may come twice",
    "a dispatcher frozen for longer than lease and quarantine": "it may have checked the clock just before",
    "a lost disk": "what PostgreSQL and the bus have confirmed must stay stored",
}

FaultKind = Literal["kill", "freeze", "database", "cut", "bus", "sms", "poison"]


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A fault that starts `at` seconds after the beginning of the run and lasts `seconds`. `options` depend on the kind."""

    at: float
    kind: FaultKind
    target: str
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)


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


# Of each kind: the range of seconds between two faults, and the range of their durations in seconds.
TIMES: dict[FaultKind, tuple[tuple[float, float], tuple[float, float]]] = {
    "kill": ((1.0, 3.0), (0.1, 1.0)),
    "freeze": ((0.5, 2.0), (1.0, 6.0)),
    "database": ((4.0, 12.0), (0.1, 1.5)),
    "cut": ((1.0, 4.0), (0.0, 0.0)),
    "bus": ((0.2, 1.5), (1.0, 4.0)),
    "sms": ((0.2, 1.0), (1.0, 3.0)),
    "poison": ((2.0, 6.0), (0.0, 0.0)),
}
# A frozen dispatcher, then a frozen provider, then a text created late: together well within lease and quarantine.
SHORTER_FREEZES = {"notification-dispatcher": (1.0, LEASE + 1.0), "sms-sandbox": (0.3, 1.5)}


def schedule(seed: int, seconds: float, processes: Sequence[str]) -> list[ScheduledFault]:
    """In the order of their start; all end within `seconds`."""
    decks: dict[FaultKind, Sequence[str]] = {
        "kill": processes,
        "freeze": processes,
        "database": ("fast", "immediate"),
        "cut": ("labour", "notification"),
        "bus": list(BUS_FAULTS),
        "sms": list(SMS_FAULTS),
        "poison": TOPICS,
    }
    actions = [action for kind, deck in decks.items() for action in _faults(kind, deck, seed, seconds)]
    return sorted(actions, key=lambda action: (action.at, action.kind))


def _faults(kind: FaultKind, deck: Sequence[str], seed: int, until: float) -> Iterator[ScheduledFault]:
    draw = random.Random(f"{seed}/{kind}")
    pauses, durations = TIMES[kind]
    now = 0.0
    for target in _dealt(deck, draw):
        begin = now + draw.uniform(*pauses)
        shorter = SHORTER_FREEZES.get(target.removesuffix("-2")) if kind == "freeze" else None
        now = begin + draw.uniform(*(shorter or durations))
        if now > until:
            return
        yield ScheduledFault(round(begin, 2), kind, target, round(now - begin, 2), _options(kind, target, draw))


def _dealt(deck: Sequence[str], draw: random.Random) -> Iterator[str]:
    while True:
        yield from draw.sample(deck, len(deck))


def _options(kind: FaultKind, target: str, draw: random.Random) -> dict[str, Any]:
    match kind:
        case "cut":
            return {"share": draw.choice((0.3, 1.0))}
        case "bus":
            return BUS_FAULTS[target]
        case "sms":  # the sandbox draws for each phone, from this seed
            return {**SMS_FAULTS[target], "seed": draw.randrange(2**32)}
        case _:
            return {}

"""What breaks when: a pure function of the seed and the length, so that the same seed breaks the same things again.

Several things go wrong side by side, each kind in a lane of its own, one after the other within it. Who is hit comes from a
shuffled deck, so that nobody is left out by chance and the order is different each time.

Seconds and rates stay within what docs/guarantees.md promises; what it names as remaining is left out, and said so (LEFT_OUT).
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from e2e.support.world import TAKEN

# Times of the SMS sender here, in seconds. A text whose call began is called absent after lease and quarantine, at the earliest.
LEASE, TIMEOUT, QUARANTINE = 3.0, 1.5, 8.0

LEFT_OUT = {
    "a provider that hides a message for longer than the quarantine": "then asking cannot help, and a text may come twice",
    "a sender frozen for longer than lease and quarantine": "it may have looked at the clock just before",
    "a lost disk": "what PostgreSQL and the bus have confirmed stays confirmed",
}

Kind = Literal["kill", "freeze", "database", "cut", "bus", "sms", "poison"]


@dataclass(frozen=True, slots=True)
class Action:
    """`at` seconds after the start something breaks, and after `seconds` more it is mended. `how` depends on the kind."""

    at: float
    kind: Kind
    target: str
    seconds: float
    how: dict[str, Any] = field(default_factory=dict)


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


# Of each kind: seconds from the end of one to the beginning of the next, and for how long it stays broken.
PAUSES: dict[Kind, tuple[float, float]] = {
    "kill": (1.0, 3.0),
    "freeze": (0.5, 2.0),
    "database": (4.0, 12.0),
    "cut": (1.0, 4.0),
    "bus": (0.2, 1.5),
    "sms": (0.2, 1.0),
    "poison": (2.0, 6.0),
}
LENGTHS: dict[Kind, tuple[float, float]] = {
    "kill": (0.1, 1.0),
    "freeze": (1.0, 6.0),
    "database": (0.1, 1.5),
    "cut": (0.0, 0.0),
    "bus": (1.0, 4.0),
    "sms": (1.0, 3.0),
    "poison": (0.0, 0.0),
}
# A frozen sender, then a frozen provider, then a text created late: together well within lease and quarantine.
SHORTER_FREEZES = {"notification-dispatcher": (1.0, LEASE + 1.0), "sms-sandbox": (0.3, 1.5)}


def schedule(seed: int, seconds: float, processes: Sequence[str]) -> list[Action]:
    """In the order of their beginning; all are over by `seconds`."""
    decks: dict[Kind, Sequence[str]] = {
        "kill": processes,
        "freeze": processes,
        "database": ("fast", "immediate"),
        "cut": ("labour", "notification"),
        "bus": list(BUS_FAULTS),
        "sms": list(SMS_FAULTS),
        "poison": TAKEN,
    }
    actions = [action for kind, deck in decks.items() for action in _lane(kind, deck, seed, seconds)]
    return sorted(actions, key=lambda action: (action.at, action.kind))


def _lane(kind: Kind, deck: Sequence[str], seed: int, until: float) -> Iterator[Action]:
    draw = random.Random(f"{seed}/{kind}")
    now = 0.0
    for target in _dealt(deck, draw):
        begin = now + draw.uniform(*PAUSES[kind])
        now = begin + draw.uniform(*_lengths(kind, target))
        if now > until:
            return
        yield Action(round(begin, 2), kind, target, round(now - begin, 2), _how(kind, target, draw))


def _dealt(deck: Sequence[str], draw: random.Random) -> Iterator[str]:
    while True:
        yield from draw.sample(deck, len(deck))


def _lengths(kind: Kind, target: str) -> tuple[float, float]:
    shorter = SHORTER_FREEZES.get(target.removesuffix("-2")) if kind == "freeze" else None
    return shorter or LENGTHS[kind]


def _how(kind: Kind, target: str, draw: random.Random) -> dict[str, Any]:
    match kind:
        case "cut":
            return {"share": draw.choice((0.3, 1.0))}
        case "bus":
            return BUS_FAULTS[target]
        case "sms":  # the sandbox draws, too: with a seed of ours the same phone meets the same
            return {**SMS_FAULTS[target], "seed": draw.randrange(2**32)}
        case _:
            return {}

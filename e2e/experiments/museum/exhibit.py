"""An exhibit: a mistake, the scenario that provokes it, the promise that it breaks, and what the check must report."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from e2e.experiments.museum.testbed import Testbed

PROMISES = {
    1: "an event exists if and only if its change committed",
    2: "every committed event reaches the bus",
    3: "the events of a labour are published in the order they happened",
    4: "the effect of an event happens exactly once",
    5: "contention is a nack, and a failure leaves neither claim nor effect",
    6: "a person gets each text, and at most once",
    7: "an event that cannot be processed delays no other labour",
    8: "a retried request with the same key has one effect",
    9: "an older status never overwrites a newer one",
    14: "one labour's traffic does not delay another's notifications, and no number is texted without its owner's consent",
}

Part = Any  # what the scenario tests: a relay, a consumer, a lock key …
Scenario = Callable[[Testbed, Part], Awaitable[list[str]]]  # returns the violations


@dataclass(frozen=True, slots=True)
class Exhibit:
    """`breaks` is the number of the promise in docs/guarantees.md; the check must report exactly what is `expected`."""

    title: str
    breaks: int
    scenario: Scenario
    ours: Part
    mistake: Part
    expected: tuple[str, ...]

    @property
    def name(self) -> str:
        return "-".join(re.findall(r"[a-z]+", self.title.lower().replace("'s", "")))


registered: list[Exhibit] = []

P = TypeVar("P")


def exhibit(title: str, scenario: Scenario, ours: Part, breaks: int, *expected: str) -> Callable[[P], P]:
    def register(mistake: P) -> P:
        registered.append(Exhibit(title, breaks, scenario, ours, mistake, expected))
        return mistake

    return register

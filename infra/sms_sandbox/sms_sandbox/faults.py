"""The faults of the sandbox. They are off by default, switched on while the sandbox runs, and kept over a restart.

A fault strikes a phone's n-th opportunity if a draw from (seed, fault, phone, n) falls below its rate. So the same seed gives
the same faults to the same phone, however the requests of different phones interleave and whichever client sends them.
"""

import json
import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sms_sandbox.errors import MEANINGS, REFUSALS
from sms_sandbox.store import Store

MAX_SECONDS = 3600.0


class BadFault(Exception):
    """The fault cannot be set as asked. The message says what can."""


class UnknownFault(BadFault):
    pass


@dataclass(frozen=True, slots=True)
class FaultKind:
    description: str
    parameters: Mapping[str, float] = field(default_factory=dict)  # each with its default


SECONDS = {"seconds": 5.0}
KINDS: dict[str, FaultKind] = {
    "request-lost": FaultKind("Nothing is created, and the connection closes without an answer."),
    "rate-limited": FaultKind("Nothing is created; the answer is 429 with code 20429."),
    "refused": FaultKind("Nothing is created; the answer is the error `code`.", {"code": 21610}),
    "created-late": FaultKind(
        "The connection closes without an answer; the message is created `seconds` later.", SECONDS
    ),
    "reply-lost": FaultKind("The message is created, then the connection closes without an answer."),
    "created-500": FaultKind("The message is created, but the answer is 500 with code 20500."),
    "slow": FaultKind("The message is created at once; the answer comes `seconds` later.", SECONDS),
    "list-lag": FaultKind("The message appears in lists only after `seconds`; a fetch by its sid finds it.", SECONDS),
    "undelivered": FaultKind("The message ends as undelivered, with the error `code`.", {"code": 30003}),
    "callbacks-lost": FaultKind("A status callback is not sent."),
    "callbacks-doubled": FaultKind("A status callback is sent twice."),
    "callbacks-reordered": FaultKind("The callbacks of a message come at the end, the last status first."),
}
OFF = {"rate": 0.0, "times": None, "seed": None}
CODES: dict[str, list[int]] = {"refused": list(REFUSALS), "undelivered": list(MEANINGS)}


@dataclass(frozen=True, slots=True)
class Fault:
    """`times` is how often it may still strike; None is without limit."""

    name: str
    rate: float
    seed: int
    times: int | None
    parameters: dict[str, float]

    @property
    def seconds(self) -> float:
        return self.parameters["seconds"]

    @property
    def code(self) -> int:
        return int(self.parameters["code"])


class Faults:
    def __init__(self, store: Store, changed: Callable[[], None]) -> None:
        self.store = store
        self.changed = changed

    def active(self) -> dict[str, Fault]:
        rows = self.store.db.execute("SELECT name, rate, seed, times, parameters FROM fault ORDER BY name")
        return {name: Fault(name, rate, seed, times, json.loads(more)) for name, rate, seed, times, more in rows}

    def shown(self) -> list[dict[str, object]]:
        """Every fault, on or off, with its settings or their defaults."""
        active = self.active()
        items: list[dict[str, object]] = []
        for name, kind in KINDS.items():
            fault = active.get(name)
            item = {"name": name, "description": kind.description, "active": fault is not None}
            draws = {"rate": fault.rate, "times": fault.times, "seed": fault.seed} if fault else OFF
            items.append({**item, **draws, **(fault.parameters if fault else kind.parameters)})
        return items

    def set(self, name: str, wanted: object) -> None:
        fault = read_fault(name, wanted)
        with self.store.transaction():
            self._forget(name)
            if fault.rate > 0:
                values = (name, fault.rate, fault.seed, fault.times, json.dumps(fault.parameters))
                self.store.db.execute("INSERT INTO fault VALUES (?, ?, ?, ?, ?)", values)
        self.changed()

    def clear(self, name: str | None = None) -> None:
        if name is not None:
            _kind(name)
        with self.store.transaction():
            for each in [name] if name else list(KINDS):
                self._forget(each)
        self.changed()

    def strikes(self, name: str, phone: str) -> Fault | None:
        """Whether the fault strikes now. Call it inside the transaction of what it changes: the draw is counted there."""
        fault = self.active().get(name)
        if fault is None:
            return None
        draw = "INSERT INTO draw VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1 RETURNING count"
        (count,) = self.store.db.execute(draw, (name, phone)).fetchone()
        if random.Random(f"{fault.seed}/{name}/{phone}/{count}").random() >= fault.rate:  # noqa: S311  (it must repeat)
            return None
        if fault.times is not None:
            self._use_up(fault.name, fault.times)
        return fault

    def _use_up(self, name: str, times: int) -> None:
        if times > 1:
            self.store.db.execute("UPDATE fault SET times = ? WHERE name = ?", (times - 1, name))
        else:
            self._forget(name)
        self.changed()

    def _forget(self, name: str) -> None:
        self.store.db.execute("DELETE FROM fault WHERE name = ?", (name,))
        self.store.db.execute("DELETE FROM draw WHERE fault = ?", (name,))


def read_fault(name: str, wanted: object) -> Fault:
    """Check what a PUT asks for. A rate of 0 switches the fault off; without a seed one is chosen and shown."""
    kind = _kind(name)
    if not isinstance(wanted, dict):
        raise BadFault('the body must be a JSON object, for example {"rate": 1}')
    known = ["rate", "times", "seed", *kind.parameters]
    if unknown := sorted(set(wanted) - set(known)):
        raise BadFault(f"{name} has no {', '.join(unknown)}; it takes {', '.join(known)}")
    times, seed = wanted.get("times"), wanted.get("seed")
    if times is not None:
        times = int(_number("times", times, 1, 1_000_000, whole=True))
    seed = secrets.randbelow(2**32) if seed is None else int(_number("seed", seed, 0, 2**53, whole=True))
    parameters: dict[str, float] = {}
    for key, default in kind.parameters.items():
        value = wanted.get(key, default)
        if key == "code" and value not in CODES[name]:
            raise BadFault(f"code must be one of {', '.join(map(str, CODES[name]))}, not {value!r}")
        parameters[key] = value if key == "code" else _number(key, value, 0, MAX_SECONDS)
    return Fault(name, _number("rate", wanted.get("rate", 1), 0, 1), seed, times, parameters)


def _kind(name: str) -> FaultKind:
    if name not in KINDS:
        raise UnknownFault(f"there is no fault {name!r}; there are {', '.join(KINDS)}")
    return KINDS[name]


def _number(key: str, value: object, low: float, high: float, *, whole: bool = False) -> float:
    kinds = (int,) if whole else (int, float)
    if isinstance(value, int | float) and type(value) in kinds and low <= value <= high:  # True is not a number here
        return value
    raise BadFault(f"{key} must be a {'whole ' if whole else ''}number from {low:g} to {high:g}, not {value!r}")

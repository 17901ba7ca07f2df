"""Faults: the failures that the service may show, switched on and off while the emulator runs.

Each has a `rate` (a probability from 0 to 1, default 1) and an optional `topic` (its id or full name; default every topic). They
stay within what the service promises: exactly-once subscriptions are sent no copies and their acks count, and the messages of an
ordering key keep their order.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pubsub_emulator.errors import PubSubError

DESCRIPTIONS: Final = {
    "duplicate": "Every message is delivered twice, under two ack ids.",
    "delay": "A message becomes available only after `seconds` (default 5).",
    "reorder": "Messages that are ready are delivered in random order.",
    "forget-acks": "An ack is answered and forgotten, so the message comes back after its deadline.",
    "refuse-publish": "A publish request is answered with UNAVAILABLE, and nothing is published.",
    "hang": "A publish request is left unanswered until the fault is cleared.",
    "drop-streams": "A streaming pull ends with UNAVAILABLE instead of a response.",
}
DEFAULT_DELAY: Final = 5.0
_MAX_DELAY: Final = 600.0


class UnknownFault(PubSubError):
    pass


class BadFault(PubSubError):
    pass


@dataclass(frozen=True, slots=True)
class Fault:
    rate: float = 1.0
    topic: str | None = None
    seconds: float | None = None

    @classmethod
    def from_json(cls, name: str, body: Any) -> "Fault":
        check_name(name)
        allowed = {"rate", "topic", "seconds"} if name == "delay" else {"rate", "topic"}
        if not isinstance(body, Mapping) or not allowed.issuperset(body):
            raise BadFault(f"{name} takes a JSON object with {', '.join(sorted(allowed))}")
        fault = cls(**({"seconds": DEFAULT_DELAY} if name == "delay" else {}) | dict(body))
        if not _is_number(fault.rate) or not 0 < fault.rate <= 1:
            raise BadFault(f"rate: {fault.rate!r} is not a number above 0 and at most 1")
        if fault.topic is not None and not isinstance(fault.topic, str):
            raise BadFault(f"topic: {fault.topic!r} is not a string")
        if fault.seconds is not None and (not _is_number(fault.seconds) or not 0 < fault.seconds <= _MAX_DELAY):
            raise BadFault(f"seconds: {fault.seconds!r} is not a number above 0 and at most {_MAX_DELAY:g}")
        return fault

    def to_json(self) -> dict[str, Any]:
        return {key: value for key in self.__slots__ if (value := getattr(self, key)) is not None}

    def strikes(self, topic: str) -> bool:
        return (self.topic is None or topic == self.topic or topic.endswith(f"/topics/{self.topic}")) and (
            self.rate >= 1 or random.random() < self.rate  # noqa: S311
        )


class Faults:
    """The faults that are on. Hot paths check `active` first, which is False unless a fault is on."""

    def __init__(self, on: dict[str, Fault]) -> None:
        self._on = on
        self._changed = asyncio.Event()
        self.active = bool(on)

    @property
    def on(self) -> Mapping[str, Fault]:
        return self._on

    def listing(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "description": text, "active": name in self._on}
            | (self._on[name].to_json() if name in self._on else {})
            for name, text in DESCRIPTIONS.items()
        ]

    def replace(self, on: dict[str, Fault]) -> None:
        self._on = on
        self.active = bool(on)
        self._changed.set()
        self._changed = asyncio.Event()

    def strikes(self, name: str, topic: str) -> bool:
        fault = self._on.get(name)
        return fault is not None and fault.strikes(topic)

    async def hang(self, topic: str) -> None:
        """Wait for as long as `hang` is on, if it strikes."""
        if self.strikes("hang", topic):
            while "hang" in self._on:
                await self._changed.wait()

    @property
    def delay(self) -> float:
        """For how long `delay` holds a message back, in seconds."""
        fault = self._on.get("delay")
        return fault.seconds if fault and fault.seconds else DEFAULT_DELAY


def check_name(name: str) -> None:
    if name not in DESCRIPTIONS:
        raise UnknownFault(f"there is no fault {name!r}; there are {', '.join(DESCRIPTIONS)}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

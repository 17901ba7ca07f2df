"""What goes wrong, and for whom: seeded, so that every design meets the same."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from notification.delivery.twilio import SendOutcome, Twilio

# Seconds
TIMEOUT, LEASE, QUARANTINE = 0.4, 1.0, 1.0
SOON, TOO_LATE = 0.2, 3.0  # how long a provider hides a message: well within the quarantine, and well beyond
PAUSE = LEASE + QUARANTINE + 1.0

RATE = 0.5  # of the messages are hit


class Crash(BaseException):
    """The process ends here, for this message: nothing handles it, nothing after it runs."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`remains`: our design does not claim to survive it, and the guarantees say so."""

    name: str
    provider: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # faults of the sandbox
    crash: str = ""  # before-call, after-call, or before-commit (the last one)
    pause: bool = False  # the sender sleeps between its record and its call
    guarded: bool = True  # the sender looks at the clock before it calls
    remains: bool = False


FAULTS = (
    Fault("nothing goes wrong"),
    Fault("crash after the record, before the call", crash="before-call"),
    Fault("request lost", {"request-lost": {}}),
    Fault("reply lost", {"reply-lost": {}}),
    Fault("created, but answered 500", {"created-500": {}}),
    Fault("crash after the reply", crash="after-call"),
    Fault("crash before the last commit", crash="before-commit"),
    Fault("created late, within the quarantine", {"created-late": {"seconds": SOON}}),
    Fault("reply lost and list late, within the quarantine", {"list-lag": {"seconds": SOON}, "reply-lost": {}}),
    Fault("sender paused beyond lease and quarantine", pause=True),
    Fault("created late, after the quarantine", {"created-late": {"seconds": TOO_LATE}}, remains=True),
    Fault(
        "reply lost and list late, after the quarantine",
        {"list-lag": {"seconds": TOO_LATE}, "reply-lost": {}},
        remains=True,
    ),
    Fault("sender paused after its look at the clock", pause=True, guarded=False, remains=True),
)


_phone: ContextVar[str] = ContextVar("phone")  # to which the current task sends


class Misfortune:
    """Strikes each phone at most once, at the place that the fault names."""

    def __init__(self, fault: Fault, seed: int) -> None:
        self._fault, self._seed = fault, seed
        self._struck, self._pauses = set[str](), 0

    @property
    def guarded(self) -> bool:
        return self._fault.guarded

    def may_crash(self, place: str, phone: str) -> None:
        if self._fault.crash == place and phone not in self._struck and self._draw(phone):
            self._struck.add(phone)
            raise Crash

    async def may_crash_before_commit(self) -> None:
        self.may_crash("before-commit", _phone.get())

    async def may_pause(self) -> None:
        """By number and not by phone: a dispatcher says that it has taken a message, not which."""
        self._pauses += 1
        if self._fault.pause and self._draw(str(self._pauses)):
            await asyncio.sleep(PAUSE)

    def _draw(self, whom: str) -> bool:
        return random.Random(f"{self._seed}/{self._fault.name}/{whom}").random() < RATE


class Wire(Twilio):
    """The real client, with a place to crash before and after each call."""

    def __init__(self, url: str, may_crash: Callable[[str, str], None], timeout: float) -> None:
        account = {"account_sid": "AC" + "0" * 32, "auth_token": "quest", "sender": "+15005550006"}
        super().__init__(**account, base_url=url, timeout=timeout)
        self._may_crash = may_crash

    async def send(self, *, to: str, body: str, status_callback: str) -> SendOutcome:
        _phone.set(to)
        self._may_crash("before-call", to)
        outcome = await super().send(to=to, body=body, status_callback=status_callback)
        self._may_crash("after-call", to)
        return outcome

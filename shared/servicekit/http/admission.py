"""Admission control: one process accepts as many requests as it can answer in time, and refuses the others at once.

A request needs a slot until its response begins. If all slots are taken it waits in a short queue, for at most
`HTTP_QUEUE_SECONDS`. If the queue is full, or the time is over, the answer is 503 `busy` with `Retry-After`: before the route is
looked up, the token verified or the database asked. So a refused request has no effect and costs next to nothing, and what is
admitted is answered as fast as by a process that is just fully used.

- Health routes need no slot: a process that refuses requests is busy, not broken, and replacing it would not help.
- The operators' listener has slots of its own, so that it can be reached while the others are taken, and waits longer.
- A live stream gives its slot back when it begins, as every response does. Its later queries have connections of their own.
- Callbacks and pushed messages wait like any request. Pub/Sub repeats what was refused; docs/operations.md says what Twilio does.
"""

import asyncio
import random
import time
from collections import OrderedDict

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from structlog import get_logger

from servicekit.http.http_limits import HttpLimits
from servicekit.http.problems import busy, encode

log = get_logger()

HEALTH = "/health/"
SHORT_PAUSE, LONG_PAUSE = 3, 12  # seconds: the longest `Retry-After` while few requests are refused, and while many are
WINDOW = 1.0  # seconds in which requests are counted, and between two log lines

_ANSWERS = {seconds: encode(busy(seconds)) for seconds in range(1, LONG_PAUSE + 1)}


class Slots:
    """A number of slots (`count`), and a queue in the order of arrival for `queue` requests, each for at most `seconds`."""

    def __init__(self, count: int, *, queue: int, seconds: float) -> None:
        self._free, self._queue, self._seconds = count, queue, seconds
        self._waiting = OrderedDict[asyncio.Future[None], None]()

    def take(self) -> bool:
        """Take a free slot, if there is one."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def wait(self) -> bool:
        """Wait for a slot. False if the queue is full, or if the time is over."""
        if len(self._waiting) >= self._queue:
            return False
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        try:
            await asyncio.wait([turn], timeout=self._seconds)
        except BaseException:
            if turn.done():
                self.give_back()
            raise
        finally:
            self._waiting.pop(turn, None)
        return turn.done()

    def give_back(self) -> None:
        """Hand the slot to the request that has waited longest."""
        if self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            turn.set_result(None)
        else:
            self._free += 1


class RetryAfter:
    """Chooses how long refused clients should wait, so that refusing them costs little beside what is admitted.

    A pause is random, so that they do not all return at once. The longest pause doubles after each window in which more
    requests were refused than admitted, and halves after one in which less than a quarter as many were.
    """

    def __init__(self) -> None:
        self.admitted = self._refused = 0
        self.longest, self._window_ends = SHORT_PAUSE, 0.0

    def draw(self, now: float) -> int:
        """Seconds, for one more refused request. `now` is monotonic."""
        self._refused += 1
        if now >= self._window_ends:
            self._begin_window(now)
        return random.randint(1, self.longest)  # noqa: S311  (spreads load, protects nothing)

    def _begin_window(self, now: float) -> None:
        if now >= self._window_ends + WINDOW:  # none was refused in the last window
            self.longest = SHORT_PAUSE
        elif self._refused > self.admitted:
            self.longest = min(LONG_PAUSE, 2 * self.longest)
        elif 4 * self._refused < self.admitted:
            self.longest = max(SHORT_PAUSE, self.longest // 2)
        log.warning("requests refused: the process is busy", count=self._refused)
        self.admitted = self._refused = 0
        self._window_ends = now + WINDOW


class Admission:
    """The layer that gives slots to the requests of one listener, or refuses them."""

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        self._app = app
        self._slots = Slots(limits.concurrency, queue=limits.queue, seconds=limits.queue_seconds)
        self._retry_after = RetryAfter()

    def is_limited(self, path: str) -> bool:
        """False for the health routes, which must be reached while a process is overloaded."""
        return not path.startswith(HEALTH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not self.is_limited(scope["path"]):
            await self._app(scope, receive, send)
            return
        slots = self._slots
        if not (slots.take() or await slots.wait()):
            await self.refuse(scope, receive, send)
            return
        self._retry_after.admitted += 1
        held = True

        async def send_and_give_back(message: Message) -> None:
            nonlocal held
            if held and message["type"] == "http.response.start":
                held = False
                slots.give_back()
            await send(message)

        try:
            await self._app(scope, receive, send_and_give_back)
        finally:
            if held:
                slots.give_back()

    async def refuse(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers, body = _ANSWERS[self._retry_after.draw(time.monotonic())]
        await send({"type": "http.response.start", "status": 503, "headers": list(headers)})
        await send({"type": "http.response.body", "body": body, "more_body": False})

"""The load generator: clients of the Labour API that repeat their requests and remember every answer.

Each command has its own Idempotency-Key and is sent with that key until it is answered: to either replica of the API, sometimes
to both at once, and sometimes again after it was answered. The client log holds what the answers promised. The accounting
compares it with databases, bus and phones; the clients themselves never look into a database.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from e2e.support.api import async_client, speaking_as

# Area code and 555-01xx: numbers that are reserved for fiction.
FICTIONAL_PHONES = [f"+1{area}55501{line:02}" for area in (202, 212, 312, 415, 617, 702, 808) for line in range(100)]
CALL_SECONDS = 3.0  # after which a client repeats its request
PATIENCE = 240.0  # seconds after which a command without an answer is a finding
WRITERS = 6
# Problems after which the same request is sent again: a transient error, or its first copy is still being handled.
RETRYABLE = {"busy", "unavailable", "not-ready", "request-in-flight", "too-busy"}


@dataclass(frozen=True, slots=True)
class AnsweredCommand:
    """`events` are the types of the events that it must have caused, once each."""

    key: str
    labour_id: str
    events: tuple[str, ...]


@dataclass(slots=True)
class ClientLog:
    """`texts` are those that must reach the phones: (phone, text without its reference)."""

    answered: list[AnsweredCommand] = field(default_factory=list)
    texts: Counter[tuple[str, str]] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)  # answers that the API must not give
    clocks_differ: bool = False  # a replica of the API has had a wrong clock, so that an end may be before its start
    labours: int = 0
    calls: int = 0
    unanswered: int = 0
    rejected: int = 0  # with a problem that a client may retry
    replayed: int = 0  # answered with the stored answer of the first request

    def counts(self) -> dict[str, int]:
        return {
            "labours": self.labours,
            "commands": len(self.answered),
            "calls": self.calls,
            "unanswered calls": self.unanswered,
            "rejected calls": self.rejected,
            "replayed answers": self.replayed,
        }


class RequestRejected(Exception):
    """A command that must succeed did not. Its labour ends here; the client log has the answer."""


class RetryingClient:
    """The client of one mother."""

    def __init__(self, apis: Sequence[httpx.AsyncClient], log: ClientLog, draw: random.Random) -> None:
        self._apis, self._log, self._draw = apis, log, draw
        self._headers = speaking_as(f"mother-{uuid4()}")
        self.labour_id = ""

    async def send(self, method: str, path: str, events: tuple[str, ...], body: dict[str, Any] | None = None) -> Any:
        """Send a command until it is answered, and log which events it must cause. Returns the JSON of the answer."""
        key = str(uuid4())
        twice_at_once, once_more = self._draw.random() < 0.1, self._draw.random() < 0.2
        if twice_at_once:
            both = (self._until_answered(api, method, path, key, body) for api in self._apis)
            answers = await asyncio.gather(*both)
        else:
            answers = [await self._until_answered(self._draw.choice(self._apis), method, path, key, body)]
        if once_more:
            answers.append(await self._until_answered(self._apis[0], method, path, key, body))
        # A refusal is not stored with its key: where clocks differ, another replica may accept the same request.
        accepted = [answer for answer in answers if not self._has_wrong_times(_problem(answer))]
        first = (accepted or answers)[0]
        for other in accepted[1:]:
            self._compare(path, first, other)
        if first.is_error:
            raise RequestRejected
        answer: Any = first.json() if first.content else None
        if path == "/api/v1/labours":
            self.labour_id = answer["id"]
        self._log.answered.append(AnsweredCommand(key, self.labour_id, events))
        return answer

    async def _until_answered(
        self, api: httpx.AsyncClient, method: str, path: str, key: str, body: dict[str, Any] | None
    ) -> httpx.Response:
        headers = {**self._headers, "Idempotency-Key": f'"{key}"'}
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._log.calls += 1
            try:
                answer = await api.request(method, path, json=body, headers=headers)
            except httpx.TransportError:
                self._log.unanswered += 1
            else:
                problem = _problem(answer)
                if problem and problem not in RETRYABLE and not self._has_wrong_times(problem):
                    self._log.violations.append(f"{method} {_anonymous(path)} was answered {problem}")
                if answer.status_code < 500 and problem not in RETRYABLE:
                    self._log.replayed += answer.headers.get("Idempotency-Replayed") == "true"
                    return answer
                self._log.rejected += 1
            await asyncio.sleep(self._draw.uniform(0.05, 0.5))
            api = self._draw.choice(self._apis)
        self._log.violations.append(f"{method} {_anonymous(path)} was never answered")
        raise RequestRejected

    def _has_wrong_times(self, problem: str) -> bool:
        return problem == "impossible-times" and self._log.clocks_differ

    def _compare(self, path: str, first: httpx.Response, second: httpx.Response) -> None:
        if (first.status_code, first.content) != (second.status_code, second.content):
            self._log.violations.append(f"{_anonymous(path)} was answered differently when it was repeated")


async def run_labour(apis: Sequence[httpx.AsyncClient], log: ClientLog, draw: random.Random, number: int) -> None:
    """One labour from the plan to the birth, with a random selection of commands in between."""
    client, mother = RetryingClient(apis, log, draw), f"Ada {number}"
    subscribed: dict[str, str] = {}  # subscriber → phone

    async def pause() -> None:
        await asyncio.sleep(draw.uniform(0.0, 0.3))

    async def subscribe(phone: str) -> None:
        body = {"name": draw.choice(("Grace", "Alan", "Joan", "Edsger")), "phone": phone}
        person = await client.send("POST", f"{labour}/subscribers", ("subscriber.added",), body)
        subscribed[person["id"]] = phone

    async def unsubscribe() -> None:
        person = draw.choice(sorted(subscribed))
        await client.send("DELETE", f"{labour}/subscribers/{person}", ("subscriber.removed",))
        del subscribed[person]

    def expect_text(text: str) -> None:
        log.texts.update((phone, text) for phone in subscribed.values())

    await client.send("POST", "/api/v1/labours", ("labour.planned",), {"mother_name": mother})
    labour = f"/api/v1/labours/{client.labour_id}"
    phones = draw.sample(FICTIONAL_PHONES, 4)
    await asyncio.gather(*(subscribe(phone) for phone in phones[: draw.randint(1, 3)]))
    if draw.random() < 0.3:
        await unsubscribe()
    await pause()
    begun = f"FernLabour: {mother} is in labour. We will tell you when the baby is here. Reply STOP to stop."
    course = draw.random()
    if course < 0.4:
        await client.send("PUT", f"{labour}/begin", ("labour.begun",))
        expect_text(begun)
    elif course < 0.8:  # the first contraction begins the labour
        events = ("labour.begun", "contraction.started")
        contraction = await client.send("POST", f"{labour}/contractions", events, {})
        expect_text(begun)
        await pause()
        end = f"{labour}/contractions/{contraction['id']}/end"
        await client.send("PUT", end, ("contraction.ended",), {"intensity": draw.randint(1, 9)})
    await pause()
    if draw.random() < 0.3:
        await subscribe(phones[3])
    if draw.random() < 0.5:
        body = {"kind": "announcement", "text": "Nearly there!"}
        await client.send("POST", f"{labour}/updates", ("labour.announced",), body)
        expect_text(f'FernLabour: {mother} says: "Nearly there!" Reply STOP to stop.')
        await pause()
    if subscribed and draw.random() < 0.2:
        await unsubscribe()
    await client.send("PUT", f"{labour}/complete", ("labour.completed",))
    expect_text(f"FernLabour: The baby is here! {mother} has given birth. Reply STOP to stop.")
    log.labours += 1


async def overload(api: str, log: ClientLog, seed: str, clients: int, seconds: float) -> int:
    """Let many clients plan labours at one API, each as fast as it is answered. Returns how many were planned."""
    end = time.monotonic() + seconds
    before = len(log.answered)
    async with async_client(api, timeout=CALL_SECONDS) as http:

        async def plan(name: int) -> None:
            draw = random.Random(f"{seed}/overload/{name}")
            while time.monotonic() < end:
                client = RetryingClient([http, http], log, draw)
                with suppress(RequestRejected):
                    await client.send("POST", "/api/v1/labours", ("labour.planned",), {"mother_name": "Ada"})

        async with asyncio.TaskGroup() as crowd:
            for name in range(clients):
                crowd.create_task(plan(name))
    return len(log.answered) - before


async def generate_load(
    apis: Sequence[str], log: ClientLog, seed: int, stop: asyncio.Event, writers: int = WRITERS
) -> None:
    """Run labours, several at a time, until `stop` is set; then finish those under way."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(async_client(url, timeout=CALL_SECONDS)) for url in apis]

        async def writer(name: int) -> None:
            draw, number = random.Random(f"{seed}/writer/{name}"), 0
            while not stop.is_set():
                number += 1
                with suppress(RequestRejected):
                    await run_labour(clients, log, draw, writers * number + name)

        async with asyncio.TaskGroup() as tasks:
            for name in range(writers):
                tasks.create_task(writer(name))


def _problem(answer: httpx.Response) -> str:
    """The name of the problem; empty if it is none."""
    return str(answer.json()["type"]).rpartition(":")[2] if answer.is_error else ""


def _anonymous(path: str) -> str:
    return "/".join("…" if len(part) == 36 else part for part in path.split("/"))

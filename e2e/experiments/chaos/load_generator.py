"""The load: mothers whose clients never give up and often say things twice, and who remember what they were told.

Each command has an Idempotency-Key of its own and is sent, with that key, until it is answered; to either replica of the API;
sometimes to both at once, and sometimes again although it was answered. What a client remembers (`Note`) is what the account
is held against: nothing here looks into a database.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from fern.tokens import make_token

CALL_SECONDS = 3.0  # until a client takes no answer for none
PATIENCE = 240.0  # seconds until a command that nobody answers is a failure of the run
WRITERS = 6
# Worth another try with the same key: not now, or the first one is still being handled
AGAIN = {"unavailable", "not-ready", "request-in-flight", "too-busy"}


@dataclass(frozen=True, slots=True)
class Note:
    """A command that was answered. `events` are the types of the events that it must have caused, once."""

    key: str
    labour_id: str
    events: tuple[str, ...]


@dataclass(slots=True)
class Notebook:
    """`texts` are those that must reach the phones: (phone, text without its reference)."""

    answered: list[Note] = field(default_factory=list)
    texts: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)  # answers that should not have been given
    labours: int = 0
    calls: int = 0
    unanswered: int = 0
    refused_for_now: int = 0
    replayed: int = 0  # the answer was given before

    def counts(self) -> dict[str, int]:
        return {
            "labours": self.labours,
            "commands": len(self.answered),
            "calls": self.calls,
            "without an answer": self.unanswered,
            "told to come again": self.refused_for_now,
            "answers given before": self.replayed,
        }


class Refused(Exception):
    """A command that must succeed did not: its labour ends here, and the answer is in the notebook."""


class Client:
    def __init__(self, apis: Sequence[httpx.AsyncClient], notebook: Notebook, draw: random.Random) -> None:
        self._apis, self._book, self._draw = apis, notebook, draw
        self._mother = {"Authorization": f"Bearer {make_token(f'mother-{uuid4()}')}"}
        self.labour_id = ""

    async def say(self, method: str, path: str, events: tuple[str, ...], body: dict[str, Any] | None = None) -> Any:
        """Sends it until it is answered, and writes down what must be true from then on."""
        key = str(uuid4())
        twice_at_once, once_more = self._draw.random() < 0.1, self._draw.random() < 0.2
        if twice_at_once:
            first, second = await asyncio.gather(
                *(self._until_answered(api, method, path, key, body) for api in self._apis)
            )
            self._compare(path, first, second)
        else:
            first = await self._until_answered(self._draw.choice(self._apis), method, path, key, body)
        if once_more:
            self._compare(path, first, await self._until_answered(self._apis[0], method, path, key, body))
        if first.is_error:
            raise Refused
        answer: Any = first.json() if first.content else None
        if path == "/api/v1/labours":
            self.labour_id = answer["id"]
        self._book.answered.append(Note(key, self.labour_id, events))
        return answer

    async def _until_answered(
        self, api: httpx.AsyncClient, method: str, path: str, key: str, body: dict[str, Any] | None
    ) -> httpx.Response:
        headers = {**self._mother, "Idempotency-Key": f'"{key}"'}
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._book.calls += 1
            try:
                answer = await api.request(method, path, json=body, headers=headers)
            except httpx.TransportError:
                self._book.unanswered += 1
            else:
                problem = answer.json()["type"].rpartition(":")[2] if answer.is_error else ""
                if problem and problem not in AGAIN:
                    self._book.wrong.append(f"{method} {_anonymous(path)} was answered {problem}")
                if answer.status_code < 500 and problem not in AGAIN:
                    self._book.replayed += answer.headers.get("Idempotency-Replayed") == "true"
                    return answer
                self._book.refused_for_now += 1
            await asyncio.sleep(self._draw.uniform(0.05, 0.5))
            api = self._draw.choice(self._apis)
        self._book.wrong.append(f"{method} {_anonymous(path)} was never answered")
        raise Refused

    def _compare(self, path: str, first: httpx.Response, second: httpx.Response) -> None:
        if (first.status_code, first.content) != (second.status_code, second.content):
            self._book.wrong.append(f"{_anonymous(path)} was answered differently when it was said again")


async def one_labour(apis: Sequence[httpx.AsyncClient], book: Notebook, draw: random.Random, number: int) -> None:
    """From the plan to the birth, with some of everything in between."""
    client, mother = Client(apis, book, draw), f"Ada {number}"
    there: dict[str, str] = {}  # who is told: subscriber → phone

    async def pause() -> None:
        await asyncio.sleep(draw.uniform(0.0, 0.3))

    async def subscribe(phone: str) -> None:
        body = {"name": draw.choice(("Grace", "Alan", "Joan", "Edsger")), "phone": phone}
        person = await client.say("POST", f"{labour}/subscribers", ("subscriber.added",), body)
        there[person["id"]] = phone

    async def unsubscribe() -> None:
        person = draw.choice(sorted(there))
        await client.say("DELETE", f"{labour}/subscribers/{person}", ("subscriber.removed",))
        del there[person]

    def all_get(text: str) -> None:
        book.texts.update((phone, text) for phone in there.values())

    await client.say("POST", "/api/v1/labours", ("labour.planned",), {"mother_name": mother})
    labour = f"/api/v1/labours/{client.labour_id}"
    phones = draw.sample(PHONES, 4)
    await asyncio.gather(*(subscribe(phone) for phone in phones[: draw.randint(1, 3)]))
    if draw.random() < 0.3:
        await unsubscribe()
    await pause()
    begun = f"{mother} is in labour. We will tell you when the baby is here."
    course = draw.random()
    if course < 0.4:
        await client.say("PUT", f"{labour}/begin", ("labour.begun",))
        all_get(begun)
    elif course < 0.8:  # the first contraction begins it
        events = ("labour.begun", "contraction.started")
        contraction = await client.say("POST", f"{labour}/contractions", events, {})
        all_get(begun)
        await pause()
        end = f"{labour}/contractions/{contraction['id']}/end"
        await client.say("PUT", end, ("contraction.ended",), {"intensity": draw.randint(1, 9)})
    await pause()
    if draw.random() < 0.3:
        await subscribe(phones[3])
    if draw.random() < 0.5:
        body = {"kind": "announcement", "text": "Nearly there!"}
        await client.say("POST", f"{labour}/updates", ("labour.announced",), body)
        all_get(f"{mother}: Nearly there!")
        await pause()
    if there and draw.random() < 0.2:
        await unsubscribe()
    await client.say("PUT", f"{labour}/complete", ("labour.completed",))
    all_get(f"The baby is here! {mother} has given birth.")
    book.labours += 1


# Fictional by convention: 555-01xx in any area. People know several mothers; the mothers have different names.
PHONES = [f"+1{area}55501{number:02}" for area in (202, 212, 312, 415, 617, 702, 808) for number in range(100)]


async def write(apis: Sequence[str], book: Notebook, seed: int, stop: asyncio.Event) -> None:
    """Labours from several writers until `stop`; then each finishes the one it is at."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    clients = [httpx.AsyncClient(base_url=url, timeout=CALL_SECONDS, limits=limits, trust_env=False) for url in apis]

    async def writer(name: int) -> None:
        draw, number = random.Random(f"{seed}/writer/{name}"), 0
        while not stop.is_set():
            number += 1
            with suppress(Refused):
                await one_labour(clients, book, draw, WRITERS * number + name)

    try:
        async with asyncio.TaskGroup() as writers:
            for name in range(WRITERS):
                writers.create_task(writer(name))
    finally:
        for client in clients:
            await client.aclose()


def _anonymous(path: str) -> str:
    return "/".join("…" if len(part) == 36 else part for part in path.split("/"))

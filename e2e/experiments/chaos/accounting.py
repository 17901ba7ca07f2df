"""The account after the storm: what the clients were told, what is in the databases, what went over the bus, what the phones got.

Four independent witnesses. The databases are reconciled by the auditor; here they are held against the other three.
"""

import asyncio
import itertools
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
from google.cloud.pubsub_v1 import SubscriberClient

from e2e.experiments.chaos.load_generator import Notebook
from e2e.support.world import World
from fern.audit.auditor import Finding, Kind, audit
from fern.dead_letters import DeadLetter, dead_letters
from fern.settings import PROJECT_ID
from fern.topology import Declared
from messaging.bus import Message
from messaging.pubsub import PubSub

POISON_WITHIN = 90.0  # seconds
# Digits within an id or a time are none of a phone.
PERSONAL = re.compile(r"(?<![0-9a-f-])(\+?1)?\d{3}55501\d\d(?![0-9a-f])|The baby is here|is in labour\.|Nearly there")
FOUR = ("lost", "duplicated", "out-of-order", "unexplained")


class Published(NamedTuple):
    """A message on the bus; of two, the later has the higher id. `position` is that of its event in the outbox of `source`.

    Events of the same `subject` have an order: those of a labour, and the news of one text. News of different texts has none.
    """

    message_id: int
    event_id: str
    source: str
    labour_id: str
    subject: str
    position: int


class Tap:
    """One more subscription on every topic, so that we see what was published, in which order, and how often."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.turn_to_the_bus()
        topics = [topic for topic in Declared.load().topics if not topic.endswith(".dlq")]
        self._subscriptions = {f"tap.{topic}": topic for topic in topics}
        with SubscriberClient() as subscriber:
            for name, topic in self._subscriptions.items():
                subscriber.create_subscription(
                    name=f"projects/{PROJECT_ID}/subscriptions/{name}",
                    topic=f"projects/{PROJECT_ID}/topics/{topic}",
                    timeout=10,
                )

    async def drain(self) -> list[Published]:
        """In the order of publishing, since the last time."""
        self._world.turn_to_the_bus()
        bus = PubSub(PROJECT_ID)
        try:
            found = await asyncio.gather(*(self._drain(bus, name) for name in self._subscriptions))
        finally:
            await bus.close()
        return sorted(set(itertools.chain(*found)))

    async def _drain(self, bus: PubSub, subscription: str) -> list[Published]:
        found = list[Published]()
        while messages := await bus.pull(subscription, 1000, wait=1.0):
            await bus.acknowledge(subscription, [message.ack_id for message in messages])
            found += map(_published, messages)
        return found


def _published(message: Message) -> Published:
    about, labour_id = message.attributes, message.attributes["ce-subject"]
    subject = json.loads(message.data).get("notification_id", labour_id)
    return Published(
        int(message.message_id), about["ce-id"], about["ce-source"], labour_id, subject, int(about["ce-sequence"])
    )


@dataclass(slots=True)
class Result:
    """`counts` in the order of the journey; `findings` is empty, or the promise is broken."""

    counts: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add_deaths(self, processes: Sequence[str]) -> None:
        """Of processes that nobody killed: none of ours should end because something else breaks."""
        self.totals["unexplained"] += len(processes)
        for name in processes:
            self.findings.append(Finding("unexplained", "", "", f"{name} ended by itself.", ""))


async def take_account(world: World, book: Notebook, tap: Tap, poison: set[str]) -> Result:
    """When everything is quiet. `poison` are messages on the bus that no service can do anything with."""
    published = [message for message in await tap.drain() if message.event_id not in poison]
    outbox = await asyncio.to_thread(_outbox, world)
    ledger = await asyncio.to_thread(world.sql, "notification", _LEDGER)
    phones = await _phones(world, {row["phone"] for row in ledger} | {phone for phone, _ in book.texts})
    dead = await _dead_letters(world, poison)
    databases = await audit(
        world.urls, sandbox=world.settings.url("sms-sandbox"), dead_letters=_each(dead), overdue_seconds=0
    )
    texts = _Texts(book, ledger, phones)
    seen = [
        *_clients_were_told_the_truth(book, outbox),
        *_all_was_published(outbox, published),
        *out_of_order(published),
        *texts.findings(),
        *_only_poison_died(poison, {letter.event_id for letter in dead}),
        *_nothing_personal_in_the_logs(world),
    ]
    known = {(finding.kind, finding.event_id) for finding in databases.findings}  # by two witnesses, and counted once
    findings = [finding for finding in seen if (finding.kind, finding.event_id) not in known]
    totals = Counter[str](finding.kind for finding in findings) + Counter(databases.totals)
    counts = {
        "committed": len(outbox),
        "published": len({message.event_id for message in published}),
        "published again": len(published) - len({message.event_id for message in published}),
        "delivered": databases.claimed + databases.repeats,
        "claimed": databases.claimed,
        "repeats absorbed": databases.repeats,
        "effects": databases.effects,
        "texts due": sum(book.texts.values()),
        "texts on phones": sum(phones.values()),
        "refused by the provider": texts.refused,
        "people": len({phone for phone, _ in book.texts}),
        "who got exactly their texts": texts.exact,
        "poison, put aside": len(poison),
    }
    totals["lost"] += totals["stuck"]  # what waits for a person did not arrive
    return Result(counts, {kind: totals[kind] for kind in FOUR}, databases.findings + findings)


async def _dead_letters(world: World, expected: set[str]) -> list[DeadLetter]:
    """A message that could not be put aside at once comes again, and is put aside then."""
    world.turn_to_the_bus()
    bus, deadline = PubSub(PROJECT_ID), time.monotonic() + POISON_WITHIN
    try:
        while True:
            dead = [letter async for letter in dead_letters(bus)]
            if expected <= {letter.event_id for letter in dead} or time.monotonic() > deadline:
                return dead
    finally:
        await bus.close()


async def _each(dead: list[DeadLetter]) -> AsyncIterator[DeadLetter]:
    for letter in dead:
        yield letter


def _only_poison_died(poison: set[str], dead: set[str]) -> Iterator[Finding]:
    for event_id in poison - dead:
        yield Finding("lost", event_id, "claimed", "This poison is neither handled nor among the dead letters.", "")
    for event_id in dead - poison:
        yield Finding("unexplained", event_id, "claimed", "This was given up, and nothing is wrong with it.", "")


def _nothing_personal_in_the_logs(world: World) -> Iterator[Finding]:
    for log in world.settings.logs.iterdir():
        if PERSONAL.search(log.read_text(errors="replace")):
            yield Finding("unexplained", "", "logs", f"{log.name} has a phone number or a text.", "")


_OUTBOX = "SELECT event_id, topic, ordering_key, request ->> 'idempotency_key' AS key FROM outbox"
_LEDGER = "SELECT event_id, phone, body, state FROM notification"


def _outbox(world: World) -> dict[str, Any]:
    """Of both services, by event."""
    rows = itertools.chain(world.sql("labour", _OUTBOX), world.sql("notification", _OUTBOX))
    return {str(row["event_id"]): row for row in rows}


def _clients_were_told_the_truth(book: Notebook, outbox: dict[str, Any]) -> Iterator[Finding]:
    """Each command that was answered had its effect, once; and nothing happened that nobody asked for."""
    caused = defaultdict[str, list[tuple[str, str]]](list)
    for event_id, row in outbox.items():
        if row["key"]:  # the Notification service's own events have no request
            caused[row["key"]].append((row["topic"], event_id))
    for note in book.answered:
        happened, promised = Counter(topic for topic, _ in caused[note.key]), Counter(note.events)
        for topic in promised - happened:
            yield Finding("lost", note.labour_id, "committed", f"{topic} was answered, and is not there.", "")
        for topic in happened - promised:
            yield Finding("duplicated", note.labour_id, "committed", f"{topic} happened more often than said.", "")
        del caused[note.key]
    for events in caused.values():
        for topic, event_id in events:
            yield Finding("unexplained", event_id, "committed", f"No answered command caused this {topic}.", "")
    for wrong in book.wrong:
        yield Finding("unexplained", "", "committed", f"{wrong}.", "")


def _all_was_published(outbox: dict[str, Any], published: list[Published]) -> Iterator[Finding]:
    seen = {message.event_id for message in published}
    for event_id in outbox.keys() - seen:
        yield Finding("lost", event_id, "published", "It is committed, and never was on the bus.", "")
    for event_id in seen - outbox.keys():
        yield Finding("unexplained", event_id, "published", "It was on the bus, and is in no outbox.", "")


def out_of_order(published: list[Published]) -> Iterator[Finding]:
    """A repetition may come late; what counts is when an event was there for the first time."""
    last, seen = dict[tuple[str, str], int](), set[str]()
    for message in sorted(published):
        stream = (message.source, message.subject)
        if message.event_id not in seen and message.position < last.get(stream, 0):
            yield Finding("out-of-order", message.event_id, "published", "A later event was published first.", "")
        seen.add(message.event_id)
        last[stream] = max(last.get(stream, 0), message.position)


class _Texts:
    """What the mothers' people must have got, against what is on the phones."""

    def __init__(self, book: Notebook, ledger: list[Any], phones: Counter[tuple[str, str]]) -> None:
        self._due, self._phones = book.texts, phones
        self._events = {_text(row): str(row["event_id"]) for row in ledger}
        self._refusals = Counter(_text(row) for row in ledger if row["state"] == "FAILED")

    @property
    def refused(self) -> int:
        return sum((self._refusals & (self._due - self._phones)).values())

    @property
    def exact(self) -> int:
        """People who got all that was due to them, and nothing else."""
        wrong = {phone for phone, _ in (self._due - self._phones - self._refusals) + (self._phones - self._due)}
        return len({phone for phone, _ in self._due} - wrong)

    def findings(self) -> Iterator[Finding]:
        for text in self._due - self._phones - self._refusals:
            yield self._finding("lost", text, "Somebody did not get a text about this.")
        for text in self._phones - self._due:
            if text in self._due:
                yield self._finding("duplicated", text, "Somebody got a text about this more than once.")
            else:
                yield self._finding("unexplained", text, "Somebody got a text that no mother caused.")

    def _finding(self, kind: Kind, text: tuple[str, str], what: str) -> Finding:
        return Finding(kind, self._events.get(text, ""), "texts", what, "")


def _text(message: Any) -> tuple[str, str]:
    """Whose phone, and the text without its reference, which nobody but the sender can know beforehand."""
    phone = message["to"] if "to" in message else message["phone"]
    return phone, message["body"].rpartition(" #")[0]


async def _phones(world: World, phones: set[str]) -> Counter[tuple[str, str]]:
    texts = Counter[tuple[str, str]]()
    async with httpx.AsyncClient(base_url=world.settings.url("sms-sandbox"), trust_env=False) as sandbox:
        for phone in sorted(phones):
            answer = await sandbox.get("/sandbox/messages", params={"to": phone, "limit": 1000})
            texts.update(_text(message) for message in answer.raise_for_status().json()["items"])
    return texts

"""The account after a chaos run. Four independent records must agree: the clients' log, the databases, the bus and the phones.

The auditor reconciles the databases with each other; here the other three are compared with them.
"""

import asyncio
import itertools
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from e2e.experiments.chaos.load_generator import ClientLog
from e2e.experiments.chaos.statistics import check_statistics
from e2e.support.api import async_client
from e2e.support.bus_tap import BusTap, Published, out_of_order
from e2e.support.world import World
from fern.audit.auditor import Finding, Kind, audit
from fern.dead_letters import DeadLetter, dead_letters
from fern.settings import PROJECT_ID
from messaging.pubsub import PubSub

DEAD_LETTERED_WITHIN = 90.0  # seconds
# Not within an id or a time, which may contain the same digits.
PERSONAL = re.compile(r"(?<![0-9a-f-])(\+?1)?\d{3}55501\d\d(?![0-9a-f])|The baby is here|is in labour\.|Nearly there")
TOTALS = ("lost", "duplicated", "out-of-order", "unexplained")


@dataclass(slots=True)
class ChaosAccount:
    """`counts` in the order of an event's path. The promise is kept if `findings` is empty."""

    counts: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, sentences: Iterable[str]) -> None:
        """Report what no record shows, such as a process that ended by itself."""
        for what in sentences:
            self.totals["unexplained"] += 1
            self.findings.append(Finding("unexplained", "", "", what, ""))


async def take_account(world: World, log: ClientLog, tap: BusTap, poison: set[str]) -> ChaosAccount:
    """Compare all records. Call it when nothing is being processed. `poison` has the ids of the invalid messages."""
    published = [message for message in await tap.drain() if message.event_id not in poison]
    outbox = await asyncio.to_thread(_outbox, world)
    ledger = await asyncio.to_thread(world.sql, "notification", _LEDGER)
    messages = await _messages(world, {row["phone"] for row in ledger} | {phone for phone, _ in log.texts})
    phones = Counter(_text(message) for message in messages)
    dead = await _dead_letters(world, poison)
    databases = await audit(
        world.urls,
        sandbox=world.settings.url("sms-sandbox"),
        bus=world.settings.url("pubsub-http"),
        dead_letters=_each(dead),
        overdue_seconds=0,
    )
    texts = _Texts(log, ledger, phones)
    seen = [
        *_check_answers(log, outbox),
        *_check_published(outbox, published),
        *out_of_order(published),
        *texts.findings(),
        *_check_order_of_texts(ledger, messages),
        *_check_dead_letters(poison, {letter.event_id for letter in dead}),
        *_check_logs(world),
        *await asyncio.to_thread(lambda: list(check_statistics(world))),
    ]
    known = {(finding.kind, finding.event_id) for finding in databases.findings}  # counted once
    findings = [finding for finding in seen if (finding.kind, finding.event_id) not in known]
    totals = Counter[str](finding.kind for finding in findings) + Counter(databases.totals)
    totals["lost"] += totals["stuck"] + totals["late"]  # an event that still waits when all is quiet did not arrive
    distinct = len({message.event_id for message in published})
    counts = {
        "committed": len(outbox),
        "published": distinct,
        "published again": len(published) - distinct,
        "delivered": databases.claimed + databases.repeats,
        "claimed": databases.claimed,
        "repeats absorbed": databases.repeats,
        "effects": databases.effects,
        "texts due": sum(log.texts.values()),
        "texts on phones": sum(phones.values()),
        "refused by the provider": texts.refused,
        "superseded by a newer text": texts.superseded,
        "people": len({phone for phone, _ in log.texts}),
        "people with exactly their texts": texts.exact,
        "poison, dead-lettered": len(poison),
    }
    return ChaosAccount(counts, {kind: totals[kind] for kind in TOTALS}, databases.findings + findings)


async def _dead_letters(world: World, expected: set[str]) -> list[DeadLetter]:
    """Wait for the expected dead letters: if a message could not be dead-lettered at once, the bus delivers it again first."""
    world.use_bus()
    bus, deadline = PubSub(PROJECT_ID), time.monotonic() + DEAD_LETTERED_WITHIN
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


def _check_dead_letters(poison: set[str], dead: set[str]) -> Iterator[Finding]:
    """Check that all poison was dead-lettered, and nothing else."""
    for event_id in poison - dead:
        yield Finding("lost", event_id, "claimed", "This poison message is not among the dead letters.", "")
    for event_id in dead - poison:
        yield Finding("unexplained", event_id, "claimed", "A valid event was dead-lettered.", "")


def _check_logs(world: World) -> Iterator[Finding]:
    for log in world.settings.logs.iterdir():
        if PERSONAL.search(log.read_text(errors="replace")):
            yield Finding("unexplained", "", "logs", f"{log.name} contains a phone number or a text.", "")


_OUTBOX = "SELECT event_id, topic, ordering_key, request ->> 'idempotency_key' AS key FROM outbox"
_LEDGER = """
    SELECT event_id, labour_id, person_id, sequence, phone, body, state, in_doubt_at IS NOT NULL AS was_in_doubt
    FROM notification
"""


def _outbox(world: World) -> dict[str, Any]:
    """The rows of both services, by event."""
    rows = itertools.chain(world.sql("labour", _OUTBOX), world.sql("notification", _OUTBOX))
    return {str(row["event_id"]): row for row in rows}


def _check_answers(log: ClientLog, outbox: dict[str, Any]) -> Iterator[Finding]:
    """Check that each answered command has caused its events once, and that no event is without such a command."""
    caused = defaultdict[str, list[tuple[str, str]]](list)
    for event_id, row in outbox.items():
        if row["key"]:  # the Notification service's own events have no request
            caused[row["key"]].append((row["topic"], event_id))
    for command in log.answered:
        happened, promised = Counter(topic for topic, _ in caused[command.key]), Counter(command.events)
        for topic in promised - happened:
            yield Finding(
                "lost", command.labour_id, "committed", f"{topic} was answered, and is not in the outbox.", ""
            )
        for topic in happened - promised:
            yield Finding(
                "duplicated", command.labour_id, "committed", f"{topic} happened more often than answered.", ""
            )
        del caused[command.key]
    for events in caused.values():
        for topic, event_id in events:
            yield Finding("unexplained", event_id, "committed", f"No answered command caused this {topic}.", "")
    for violation in log.violations:
        yield Finding("unexplained", "", "committed", f"{violation}.", "")


def _check_published(outbox: dict[str, Any], published: list[Published]) -> Iterator[Finding]:
    seen = {message.event_id for message in published}
    for event_id in outbox.keys() - seen:
        yield Finding("lost", event_id, "published", "The event is committed, and was never on the bus.", "")
    for event_id in seen - outbox.keys():
        yield Finding("unexplained", event_id, "published", "The event was on the bus, and is in no outbox.", "")


class _Texts:
    """The texts that the subscribers must have, compared with those on the phones."""

    def __init__(self, log: ClientLog, ledger: list[Any], phones: Counter[tuple[str, str]]) -> None:
        self._due, self._phones = log.texts, phones
        self._events = {_text(row): str(row["event_id"]) for row in ledger}
        self._refusals = Counter(_text(row) for row in ledger if row["state"] == "FAILED")
        self._superseded = Counter(_text(row) for row in _superseded(ledger))
        self._explained = self._refusals + self._superseded

    @property
    def refused(self) -> int:
        return sum((self._refusals & (self._due - self._phones)).values())

    @property
    def superseded(self) -> int:
        return sum((self._superseded & (self._due - self._phones)).values())

    @property
    def exact(self) -> int:
        """People who got every text that was due to them and neither refused nor superseded, and no other."""
        wrong = {phone for phone, _ in (self._due - self._phones - self._explained) + (self._phones - self._due)}
        return len({phone for phone, _ in self._due} - wrong)

    def findings(self) -> Iterator[Finding]:
        for text in self._due - self._phones - self._explained:
            yield self._finding("lost", text, "A subscriber did not get the text about this event.")
        for text in self._phones - self._due:
            if text in self._due:
                yield self._finding("duplicated", text, "A subscriber got the text about this event more than once.")
            else:
                yield self._finding("unexplained", text, "A subscriber got a text that no answered command caused.")

    def _finding(self, kind: Kind, text: tuple[str, str], what: str) -> Finding:
        return Finding(kind, self._events.get(text, ""), "texts", what, "")


def _superseded(ledger: list[Any]) -> list[Any]:
    """The superseded messages for which the person got a newer one, or the provider refused that one."""
    newest = dict[Any, int]()
    for row in ledger:
        if row["state"] in ("SENT", "DELIVERED", "UNDELIVERED", "FAILED"):
            person = row["labour_id"], row["person_id"]
            newest[person] = max(newest.get(person, 0), row["sequence"])
    return [
        row
        for row in ledger
        if row["state"] == "SUPERSEDED" and row["sequence"] < newest.get((row["labour_id"], row["person_id"]), 0)
    ]


def _check_order_of_texts(ledger: list[Any], messages: list[Any]) -> Iterator[Finding]:
    """`messages` are in the order of their creation. A text that was in doubt may have been created late by the provider."""
    rows = {(row["phone"], row["body"]): row for row in ledger}
    last = dict[Any, int]()
    for message in messages:
        row = rows.get((message["to"], message["body"]))
        if row is None or row["was_in_doubt"]:
            continue
        person = row["labour_id"], row["person_id"]
        if row["sequence"] < last.get(person, 0):
            what = "A subscriber got the text about this event after a newer one."
            yield Finding("out-of-order", str(row["event_id"]), "texts", what, "")
        last[person] = max(last.get(person, 0), row["sequence"])


def _text(message: Any) -> tuple[str, str]:
    """The phone, and the text without its reference, which the clients cannot know."""
    phone = message["to"] if "to" in message else message["phone"]
    return phone, message["body"].rpartition(" #")[0]


async def _messages(world: World, phones: set[str]) -> list[Any]:
    """All texts on these phones; those of one phone are in the order of their creation."""
    messages = list[Any]()
    async with async_client(world.settings.url("sms-sandbox")) as sandbox:
        for phone in sorted(phones):
            answer = await sandbox.get("/sandbox/messages", params={"to": phone, "limit": 1000})
            messages += reversed(answer.raise_for_status().json()["items"])
    return messages

"""One labour, played through the public APIs, with every hop of every event reported as it happens.

Times are milliseconds since the request that caused the event. They come from the services' own records where there are any, so
polling does not make them less exact.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from fern.client import call, items
from fern.errors import FernError
from fern.overrides import Overrides
from fern.settings import Settings

POLL_INTERVAL = 0.02
CONSENT_REQUESTED = "consent.requested"  # the text that asks a person, where consent is required
NOTIFYING = ("labour.begun", "labour.completed")
CLAIMED = ("subscriber.added", *NOTIFYING)  # what the Notification service consumes, of the events below
FICTION_AREAS = (202, 212, 312, 415, 617, 702, 808)  # where 555-0100 to 555-0199 are reserved for fiction
NAMES = ("Grace", "Alan", "Edsger", "Barbara", "Donald", "Margaret", "Ken", "Radia", "Leslie", "Frances")


@dataclass(frozen=True)
class Hop:
    scene: str
    hop: str  # committed, in the outbox, published, claimed, SMS sent, SMS refused
    after_ms: float
    event_type: str | None = None
    person: str | None = None


@dataclass(frozen=True)
class Text:
    person: str
    phone: str
    body: str
    event_type: str | None  # None if no notification has this text


@dataclass
class Demo:
    settings: Settings
    hop_timeout: float  # seconds
    people: dict[str, str] = field(default_factory=dict)  # name: phone
    labour_id: str = ""
    user: str = field(default_factory=lambda: f"demo-{uuid4()}")

    def play(self) -> Iterator[Hop]:
        self._choose_people()
        mother = random.choice(("Ada", "Katherine", "Hedy", "Annie"))  # noqa: S311
        yield from self._scene(f"{mother} plans her labour", "POST", "/api/v1/labours", {"mother_name": mother})
        here = f"/api/v1/labours/{self.labour_id}"
        for name, phone in self.people.items():
            person = {"name": name, "phone": phone}
            yield from self._scene(f"{name} wants to be told", "POST", f"{here}/subscribers", person)
            if Overrides.load(self.settings).consent == "required":
                yield from self._agree(name, phone)
        yield from self._scene("the labour begins", "PUT", f"{here}/begin")
        yield from self._scene("the baby is here", "PUT", f"{here}/complete")

    def texts(self) -> list[Text]:
        """The texts of these people, as the provider recorded them."""
        caused_by = {item["sid"]: item["event_type"] for item in self._notifications() if item["sid"]}
        return [
            Text(name, phone, message["body"], caused_by.get(message["sid"]))
            for name, phone in self.people.items()
            for message in reversed(self._messages(phone))
        ]

    def _choose_people(self) -> None:
        """Two random numbers reserved for fiction that have had no texts before."""
        names = random.sample(NAMES, 2)
        numbers = [f"+1{area}55501{suffix:02}" for area in FICTION_AREAS for suffix in range(100)]
        for phone in random.sample(numbers, len(numbers)):
            if not self._messages(phone):
                self.people[names[len(self.people)]] = phone
                if len(self.people) == len(names):
                    return
        raise FernError("the sandbox has texts for every number reserved for fiction.", command="fern reset")

    def _scene(self, scene: str, method: str, path: str, body: dict[str, str] | None = None) -> Iterator[Hop]:
        before = set() if not self.labour_id else {row["event_id"] for row in self._outbox()}
        began_at, clock = time.time(), time.monotonic()
        identity = {"user": self.user, "key": str(uuid4())}
        answer = call("labour", method, path, json=body, settings=self.settings, patience=self.hop_timeout, **identity)
        committed_after = (time.monotonic() - clock) * 1000
        yield Hop(scene, "committed", committed_after)
        if not self.labour_id:
            self.labour_id = answer["id"]
        events = [row for row in self._outbox() if row["event_id"] not in before]
        for event in events:  # written in the same transaction
            yield Hop(scene, "in the outbox", committed_after, event["type"])
        for event in events:
            yield from self._follow(scene, event["event_id"], event["type"], began_at)

    def _agree(self, name: str, phone: str) -> Iterator[Hop]:
        """Wait for the question that asks for consent, and answer YES from the phone."""
        clock = time.monotonic()
        while not self._messages(phone):
            if time.monotonic() > clock + self.hop_timeout:
                raise self._stuck(CONSENT_REQUESTED, name)
            time.sleep(POLL_INTERVAL)
        yield Hop(
            f"{name} is asked, and agrees", "SMS sent", (time.monotonic() - clock) * 1000, CONSENT_REQUESTED, name
        )
        call("sms", "POST", "/sandbox/inbound", json={"from": phone, "body": "YES"}, settings=self.settings)

    def _follow(self, scene: str, event_id: str, event_type: str, began_at: float) -> Iterator[Hop]:
        """Poll until the event has made all its hops."""
        deadline = time.monotonic() + self.hop_timeout
        claimed = ["claimed"] if event_type in CLAIMED else []
        missing = ["published", *claimed, *(self.people if event_type in NOTIFYING else ())]
        doubted = set[str]()
        while missing:
            if time.monotonic() > deadline:
                raise self._stuck(event_type, missing[0])
            reached = self._reached(event_id)
            for person in (self.people.keys() & missing) - doubted:
                if item := reached.get(f"{person} in doubt"):
                    doubted.add(person)
                    yield Hop(scene, item[0], _milliseconds(began_at, item[1]), event_type, person)
            while missing and missing[0] in reached:
                what = missing.pop(0)
                hop, at = reached[what]
                person_told = what if what in self.people else None
                yield Hop(scene, hop, _milliseconds(began_at, at), event_type, person_told)
            time.sleep(POLL_INTERVAL)

    def _reached(self, event_id: str) -> dict[str, tuple[str, str]]:
        """The hops made so far and their times, by "published", "claimed", a person's name, or that with "in doubt"."""
        reached = {}
        if at := next(row["published_at"] for row in self._outbox() if row["event_id"] == event_id):
            reached["published"] = ("published", at)
        for claim in self._items("notification", "/operations/claims", event_id=event_id):
            if claim["completed_at"]:
                reached["claimed"] = ("claimed", claim["completed_at"])
        for item in (item for item in self._notifications() if item["event_id"] == event_id):
            if item["sent_at"]:
                reached[item["person_name"]] = ("SMS sent", item["sent_at"])
            elif item["state"] == "FAILED":
                reached[item["person_name"]] = (
                    f"SMS refused: {item['failure']}",
                    item["sending_at"] or item["created_at"],
                )
            elif item["state"] == "SUPERSEDED":
                reached[item["person_name"]] = (
                    "SMS superseded by a newer one",
                    item["in_doubt_at"] or item["created_at"],
                )
            elif item["state"] == "IN_DOUBT":
                reached[f"{item['person_name']} in doubt"] = ("in doubt whether an SMS went", item["in_doubt_at"])
        return reached

    def _stuck(self, event_type: str, missing: str) -> FernError:
        processes = {"published": "labour-relay", "claimed": "notification-consumer"}
        responsible = processes.get(missing, "notification-dispatcher")
        what = f"texted to {missing}" if missing in self.people else missing
        problem = f"{event_type} was not {what} within {self.hop_timeout:.0f} s; {responsible} should have done it."
        return FernError(problem, command=f"fern logs {responsible}")

    def _outbox(self) -> list[dict[str, Any]]:
        return self._items("labour", "/operations/outbox", ordering_key=self.labour_id, limit=100)

    def _notifications(self) -> list[dict[str, Any]]:
        return self._items("notification", f"/api/v1/labours/{self.labour_id}/notifications")

    def _messages(self, phone: str) -> list[dict[str, Any]]:
        return self._items("sms", "/sandbox/messages", to=phone, limit=100)

    def _items(self, api: str, path: str, **query: Any) -> list[dict[str, Any]]:
        """Repeats a request that fails: the user may be killing processes meanwhile."""
        return items(api, path, settings=self.settings, patience=self.hop_timeout, **query)


def _milliseconds(since: float, at: str) -> float:
    return (datetime.fromisoformat(at).timestamp() - since) * 1000

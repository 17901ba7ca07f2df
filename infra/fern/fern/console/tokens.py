"""What moves on the console's stage: each recent event, its texts and their statuses, with the time of every hop.

A token has hops `(station, milliseconds since the epoch)`, in order, and only those that the services have recorded. The sources
are read one after the other, so one of them may know an effect whose cause another did not know yet: such a hop is left out until
the next round. A token never has a hop without all those before it, and never one that is earlier than its cause.

kind       event     from the client to the claims, or to the consumer that takes it
           copy      the same event for a second consumer
           text      one person's message, from the ledger to the phone; its cause is the event
           doubt     a message whose call had no answer, until the provider was asked
           status    `notification.*`, on the way back; its cause is the text
           duplicate a delivery that the claims absorbed: it turns back
state      moves, waits, done, bad or gone (superseded, discarded, absorbed)
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from uuid import UUID

import msgspec

from contracts.ids import derived_id
from fern.console.account import TOPICS
from fern.console.records import Claims, Dead, Records, Row, milliseconds

NAMES = {
    "labour.begun": "begun",
    "labour.announced": "announced",
    "labour.completed": "born",
    "labour.planned": "planned",
    "labour.phase-changed": "phase",
    "subscriber.added": "added",
    "subscriber.removed": "removed",
    "contraction.started": "contraction",
    "contraction.ended": "contraction ends",
}
TAKEN = {  # by consumer: its process, and the stations at which it takes an event
    "notification": ("notification-consumer", ("consumer", "ledger")),
    "statistics": ("labour-statistics", ("statistics",)),
    "labour": ("labour-consumer", ("labour-consumer", "told")),
}
REACHED = {  # the station of a text that has this status
    "notification.sent": "provider",
    "notification.delivered": "phones",
}
SIGNS = {"sent": "✓", "delivered": "✓✓", "failed": "✕", "superseded": "⤳"}


class Token(msgspec.Struct):
    id: str
    kind: str
    event_id: str
    type: str
    name: str
    hops: list[tuple[str, float]]
    state: str = "moves"
    words: str = ""
    who: str | None = None  # the person's name
    person_id: str | None = None
    about: str | None = None  # of a text or its status: the type of the event that it is about, or `consent.requested`
    sid: str | None = None
    phone: str | None = None
    cause: str | None = None  # the id of the token that must have arrived before

    def reach(self, station: str, at: str | float | None) -> bool:
        """Add a hop, unless its time is not known. A time before the last hop's is that of another clock, and is moved."""
        if at is None:
            return False
        when = at if isinstance(at, float) else milliseconds(at)
        self.hops.append((station, max(when, self.hops[-1][1]) if self.hops else when))
        return True

    def at(self, station: str) -> float | None:
        return next((when for name, when in self.hops if name == station), None)


def tokens(records: Records) -> list[Token]:
    """The oldest event first, and every token after its cause."""
    claims = {(claim["consumer"], claim["event_id"]): claim for claim in records.claims}
    messages, statuses = _by(records.messages, "event_id"), _by(records.statuses, "cause_id")
    texts = _texts_of(records)
    found = list[Token]()
    for row in sorted(records.events, key=lambda row: row["position"]):
        event = _event(row, claims, records.dead)
        found += [
            event,
            *_copies(row, event, claims, records.dead),
            *_duplicates(event, claims, records, "notification", "ledger"),
        ]
        if event.at("ledger") is None:
            continue
        found += (ofs := [_text(message, event, texts.get(message["id"])) for message in messages[row["event_id"]]])
        for text, message in zip(ofs, messages[row["event_id"]], strict=True):
            found += _doubt(text, message)
        for status in _statuses(statuses[row["event_id"]], messages[row["event_id"]], ofs, claims, records.dead):
            found += [status, *_duplicates(status, claims, records, "labour", "told")]
    return found


def _by(rows: Sequence[Row], column: str) -> defaultdict[str, list[Row]]:
    grouped = defaultdict[str, list[Row]](list)
    for row in rows:
        grouped[row[column]].append(row)
    return grouped


def _event(row: Row, claims: Claims, dead: Dead) -> Token:
    event_id, type = str(row["event_id"]), str(row["type"])
    event = Token(event_id, "event", event_id, type, NAMES.get(type) or type, [])
    if row["request"]:
        event.reach("client", row["request"]["at"])
    event.reach("outbox", row["recorded_at"])
    takers = TOPICS.get(type, [])
    if not event.reach("topic", _on_the_bus(row, [claims.get((taker, event_id)) for taker in takers])):
        return _unpublished(event, row, "labour-relay")
    if not takers:
        event.state, event.words = "done", "no consumer subscribes to it"
    else:
        _claimed(event, takers[0], claims.get((takers[0], event_id)), dead)
    return event


def _on_the_bus(row: Row, claims: Sequence[Row | None]) -> str | None:
    """When the event was on the bus: the time of the mark or of a claim, if that is earlier, as after a crash of the relay."""
    times = [row["published_at"], *(claim["claimed_at"] for claim in claims if claim)]
    return min((time for time in times if time), key=milliseconds, default=None)


def _unpublished(token: Token, row: Row, relay: str) -> Token:
    if row["discarded_at"]:
        token.state, token.words = "gone", "discarded by an operator: it is never published"
    elif row["parked_at"]:
        token.state, token.words = "bad", f"parked: {row['last_error']}"
    else:
        token.state, token.words = "waits", f"waits for {relay}"
    return token


def _claimed(token: Token, consumer: str, claim: Row | None, dead: Dead) -> None:
    """The claim and its effect were committed together, so both times are known or none."""
    process, stations = TAKEN[consumer]
    if claim is None and (consumer, token.event_id if token.kind == "copy" else token.id) in dead:
        token.state, token.words = "bad", "dead letter: see Set aside"
    elif claim is None:
        token.state, token.words = "waits", f"waits for {process}"
    elif claim["status"] == "DISCARDED":
        token.state, token.words = "gone", "discarded by an operator: it has no effect"
    elif claim["completed_at"]:
        for station, column in zip(stations, ("claimed_at", "completed_at")[-len(stations) :], strict=True):
            token.reach(station, claim[column])
        token.state = "done"


def _copies(row: Row, event: Token, claims: Claims, dead: Dead) -> Iterator[Token]:
    """labour.begun and labour.completed are also counted by the statistics."""
    if "statistics" in TOPICS.get(row["type"], [])[1:] and (published := event.at("topic")):
        copy = Token(f"{event.id}/statistics", "copy", event.event_id, event.type, event.name, [], cause=event.id)
        copy.reach("topic", published)
        _claimed(copy, "statistics", claims.get(("statistics", event.event_id)), dead)
        yield copy


def _duplicates(token: Token, claims: Claims, records: Records, consumer: str, station: str) -> Iterator[Token]:
    key = (consumer, token.id)
    arrived, claim = token.at(station), claims.get(key)
    if arrived is None or claim is None:
        return
    seen = records.repeats.get(key, ())
    topic = "topic" if station == "ledger" else "back-topic"
    for number in range(claim["deliveries"] - 1):
        when = max(arrived, seen[number] if number < len(seen) else arrived)
        hops = [(name, when) for name in (topic, station, topic)]
        words = "a duplicate: the claim exists already, so it is acknowledged and has no effect"
        id = f"{token.id}/duplicate/{number}"
        yield Token(id, "duplicate", token.event_id, token.type, token.name, hops, "gone", words, cause=token.id)


def _texts_of(records: Records) -> dict[str, Row]:
    """The provider's record of each message, by the message's id. Before the ledger knows the sid, the phone and the time tell
    which one it is.
    """
    outbound = [text for text in records.texts if text["direction"] != "inbound"]
    by_sid = {text["sid"]: text for text in outbound}
    found = {message["id"]: by_sid[message["sid"]] for message in records.messages if message["sid"] in by_sid}
    free = [text for text in outbound if text["sid"] not in {text["sid"] for text in found.values()}]
    for message in records.messages:
        if message["sid"] is None and message["sending_at"]:
            phone, called = records.phones.get(message["person_id"]), milliseconds(message["sending_at"])
            for text in reversed(free):  # the oldest first
                if text["to"] == phone and milliseconds(text["created_at"]) >= called - 5:
                    found[message["id"]] = text
                    free.remove(text)
                    break
    return found


def _text(message: Row, event: Token, text: Row | None) -> Token:
    who, state = message["person_name"], message["state"]
    token = Token(f"{event.id}/{message['id']}", "text", event.event_id, event.type, who, [], who=who, cause=event.id)
    token.person_id, token.about = message["person_id"], message["event_type"]
    if text is not None:
        token.sid, token.phone = text["sid"], text["to"]
    token.reach("ledger", max(event.at("ledger") or 0.0, milliseconds(message["created_at"])))
    if state == "SUPERSEDED":
        token.state, token.words = "gone", "superseded: a newer text to this person exists"
        return token
    if not token.reach("dispatcher", message["sending_at"]):
        token.state, token.words = ("bad" if state == "FAILED" else "waits"), message["failure"] or _waits(state)
        return token
    if text is not None:
        token.reach("provider", text["created_at"])
        if text["status"] == "delivered":
            token.reach("phones", text["updated_at"])
    elif message["delivered_at"]:  # the sandbox has forgotten it, or it is not among its newest
        token.reach("provider", message["sent_at"])
        token.reach("phones", message["delivered_at"])
    if token.at("phones"):
        token.state = "done"
    elif state in ("FAILED", "UNDELIVERED"):
        token.state, token.words = "bad", message["failure"] or "not delivered"
    elif text is not None:
        token.state, token.words = "waits", "the mobile network delivers it"
    else:
        token.state, token.words = "waits", message["failure"] or _waits(state)
    return token


def _waits(state: str) -> str:
    known = {
        "AWAITING_CONSENT": "waits until the person replies YES",
        "PENDING": "waits for notification-dispatcher",
        "SENDING": "the provider is being called",
        "IN_DOUBT": "in doubt: the dispatcher asks the provider",
    }
    return known.get(state, state.lower().replace("_", " "))


def _doubt(text: Token, message: Row) -> Iterator[Token]:
    """A token for the time from the missed answer until the ledger knows the outcome."""
    if message["in_doubt_at"] and text.at("dispatcher"):
        words = "no answer: the message may have been sent. The dispatcher asks the provider before it sends anything"
        id = f"{text.id}/doubt"
        doubt = Token(id, "doubt", text.event_id, text.type, f"{text.who}?", [], "waits", words, text.who)
        doubt.cause, doubt.person_id = text.id, text.person_id
        doubt.reach("dispatcher", message["in_doubt_at"])
        if message["sent_at"] and doubt.reach("provider", message["sent_at"]):
            doubt.state, doubt.words = "gone", "the provider has it: recorded as sent, and not sent again"
        elif message["state"] != "IN_DOUBT":
            doubt.state, doubt.words = "gone", "the provider does not have it: it is sent now"
        yield doubt


def _statuses(
    rows: Sequence[Row], messages: Sequence[Row], texts: Sequence[Token], claims: Claims, dead: Dead
) -> Iterator[Token]:
    types = {row["type"] for row in rows}
    of = {
        _status_id(message["id"], type): text for message, text in zip(messages, texts, strict=True) for type in types
    }
    for row in rows:
        if text := of.get(row["event_id"]):
            station = REACHED.get(row["type"])
            reached = text.at(station) if station else text.hops[-1][1]
            if reached is not None:
                yield _status(row, text, reached, claims.get(("labour", row["event_id"])), dead)


@lru_cache(10_000)
def _status_id(message_id: str, type: str) -> str:
    return str(derived_id(UUID(message_id), type))


def _status(row: Row, text: Token, after: float, claim: Row | None, dead: Dead) -> Token:
    kind = row["type"].removeprefix("notification.")
    sign = SIGNS.get(kind, kind)
    status = Token(row["event_id"], "status", text.event_id, row["type"], f"{text.who} {sign}", [], who=text.who)
    status.person_id, status.about, status.cause = text.person_id, text.about, text.id
    recorded = max(after, milliseconds(row["recorded_at"]))
    if kind == "delivered":
        status.reach("callback", recorded)
    status.reach("back-outbox", recorded)
    if not status.reach("back-topic", _on_the_bus(row, [claim])):
        return _unpublished(status, row, "notification-relay")
    _claimed(status, "labour", claim, dead)
    return status

"""The journey of one event, from the HTTP request to the SMS and back, as the services report it through their APIs.

Times are those that the services recorded. A person appears by the name in the ledger, which operators may read; by the id if
there is no name, and with the id if two people of an event have the same name. Phone numbers and texts do not appear.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from fern.client import claims, items
from fern.errors import FernError
from fern.settings import SERVICES, Settings

MOST = 1000  # events of a labour and service


@dataclass(frozen=True)
class Step:
    """`after_ms` counts from the first step, which is the request if it is known. Steps without a time come last."""

    hop: str
    at: str | None
    facts: dict[str, Any]
    after_ms: float | None = None


@dataclass(frozen=True)
class Journey:
    """What happened to an event, with a step for each hop; or to a labour, with a step and an id for each of its events."""

    id: str
    labour_id: str
    type: str  # of the event; or `labour`
    steps: list[Step] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        whose = "" if self.id == self.labour_id else f" of labour {self.labour_id}"
        width = max(len(step.hop) for step in self.steps)
        since = next((f", from {step.at}" for step in self.steps if step.at), "")
        return "\n".join((f"{self.type} {self.id}{whose}{since}", *(_line(step, width) for step in self.steps)))


def journey(settings: Settings, identifier: str) -> Journey:
    """The journey of the event or the labour with this id. Raises `FernError` if no service knows the id."""
    try:
        wanted = str(UUID(identifier))
    except ValueError:
        raise FernError(f"{identifier!r} is not the id of an event or a labour.", command="fern outbox ls") from None
    for service in SERVICES:
        if rows := _outbox(settings, service, event_id=wanted):
            return _of_event(settings, service, rows[0])
    if events := [row for service in SERVICES for row in _outbox(settings, service, ordering_key=wanted)]:
        return _of_labour(settings, wanted, events)
    claimed = [step for service in SERVICES for step in _claim_steps(settings, service, [wanted])]
    messages = _messages(settings, wanted)
    if steps := [*claimed, *_message_steps(messages, _names(messages))]:
        return _in_order(wanted, "", "an event that is in no outbox:", steps)
    raise FernError(f"no service knows an event or a labour {wanted}.", command="fern outbox ls")


def _outbox(settings: Settings, service: str, **query: Any) -> list[dict[str, Any]]:
    return items(service, "/operations/outbox", **query, limit=MOST, settings=settings)


def _of_event(settings: Settings, service: str, row: dict[str, Any]) -> Journey:
    event_id, labour_id = row["event_id"], row["ordering_key"]
    steps = [*_outbox_steps(service, row)]
    for consumer in SERVICES:
        steps += _claim_steps(settings, consumer, [event_id])
    if row["cause_id"]:
        steps.append(Step("caused by", None, {"event": row["cause_id"]}))
    if messages := _messages(settings, event_id):
        names = _names(messages)
        steps += [*_message_steps(messages, names), *_status_steps(settings, event_id, labour_id, names)]
    return _in_order(event_id, labour_id, row["type"], steps)


def _of_labour(settings: Settings, labour_id: str, events: list[dict[str, Any]]) -> Journey:
    ids = [row["event_id"] for row in events]
    claimed = [claim for name in SERVICES for claim in claims(name, ids, settings)]
    messages = items("notification", f"/api/v1/labours/{labour_id}/notifications", settings=settings)
    steps = []
    for row in events:
        about = [message for message in messages if message["event_id"] == row["event_id"]]
        facts = {"event": row["event_id"], "version": row["aggregate_version"], "": _state(row)}
        takers = sorted(claim["consumer"] for claim in claimed if claim["event_id"] == row["event_id"])
        facts["claimed by"] = ", ".join(takers) or None
        if about:
            facts["messages"] = f"{sum(bool(message['sent_at']) for message in about)} of {len(about)} sent"
        steps.append(Step(row["type"], row["recorded_at"], facts))
    return _in_order(labour_id, labour_id, "labour", steps)


def _outbox_steps(service: str, row: dict[str, Any]) -> Iterator[Step]:
    if request := row["request"]:
        what = f"{request['method']} {request['path']}"
        yield Step("request", request["at"], {"": what, "idempotency key": request["idempotency_key"]})
    facts = {"by": service, "version": row["aggregate_version"], "position": row["position"]}
    yield Step("committed", row["recorded_at"], facts)
    if row["replayed_at"]:
        yield Step("replayed", row["replayed_at"], {})
    sent = {"message id": row["message_id"], "refused before": row["attempts"] or None}
    if row["published_at"]:
        yield Step("published", row["published_at"], sent)
    elif row["discarded_at"]:
        yield Step("discarded", row["discarded_at"], {"last error": row["last_error"]})
    elif row["parked_at"]:
        yield Step("parked", row["parked_at"], {"attempts": row["attempts"], "last error": row["last_error"]})
    else:
        yield Step("not published yet", None, {"attempts": row["attempts"], "last error": row["last_error"]})


def _claim_steps(settings: Settings, service: str, event_ids: list[str], hop: str = "claimed") -> Iterator[Step]:
    for claim in claims(service, event_ids, settings):
        facts = {"by": claim["consumer"], "message id": claim["message_id"], "deliveries": claim["deliveries"]}
        facts["of which absorbed"] = claim["deliveries"] - 1
        if claim["status"] != "COMPLETED":
            facts["but"] = claim["status"]
        yield Step(hop, claim["completed_at"] or claim["claimed_at"], facts)


def _messages(settings: Settings, event_id: str) -> list[dict[str, Any]]:
    """The event's rows of the ledger."""
    return items("notification", "/operations/notifications", event_id=event_id, limit=MOST, settings=settings)


def _names(messages: list[dict[str, Any]]) -> dict[str, str]:
    """What to call each person, by id."""
    names = {message["person_id"]: message["person_name"] or "" for message in messages}
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    return {person: f"{name} {person}".strip() if name in shared else name or person for person, name in names.items()}


def _message_steps(messages: list[dict[str, Any]], names: dict[str, str]) -> Iterator[Step]:
    """A step for every time in the rows."""
    for message in messages:
        person = {"to": names[message["person_id"]]}
        yield Step("in the ledger", message["created_at"], {**person, "notification": message["id"]})
        if message["sending_at"]:
            yield Step("sending", message["sending_at"], {**person, "attempt": message["attempt"]})
        if message["in_doubt_at"]:
            yield Step("in doubt", message["in_doubt_at"], person)
        if message["sent_at"]:
            yield Step("SMS sent", message["sent_at"], {**person, "sid": message["sid"]})
        if message["delivered_at"]:
            yield Step("SMS delivered", message["delivered_at"], person)
        if message["state"] in ("AWAITING_CONSENT", "PENDING", "FAILED", "UNDELIVERED", "SUPERSEDED"):
            yield Step(
                f"SMS {message['state'].lower().replace('_', ' ')}", None, {**person, "because": message["failure"]}
            )


def _status_steps(settings: Settings, event_id: str, labour_id: str, names: dict[str, str]) -> Iterator[Step]:
    """How the status of the messages went back to the Labour service."""
    events = [row for row in _outbox(settings, "notification", ordering_key=labour_id) if row["cause_id"] == event_id]
    for row in events:
        event = {"event": row["event_id"]}
        yield Step(row["type"], row["recorded_at"], event)
        if row["published_at"]:
            yield Step("status published", row["published_at"], {**event, "message id": row["message_id"]})
    yield from _claim_steps(settings, "labour", [row["event_id"] for row in events], "status claimed")
    for told in items("labour", "/operations/told", labour_id=labour_id, settings=settings):
        if told["event_id"] == event_id:
            person = names.get(told["person_id"], told["person_id"])
            yield Step("told", None, {"person": person, "status": told["status"]})


def _state(row: dict[str, Any]) -> str:
    times = (("published_at", "published"), ("discarded_at", "discarded"), ("parked_at", "parked"))
    return next((state for column, state in times if row[column]), "waiting")


def _in_order(identifier: str, labour_id: str, type: str, steps: list[Step]) -> Journey:
    timed = sorted((datetime.fromisoformat(step.at), place) for place, step in enumerate(steps) if step.at)
    ordered = [replace(steps[place], after_ms=(at - timed[0][0]).total_seconds() * 1000) for at, place in timed]
    return Journey(identifier, labour_id, type, ordered + [step for step in steps if not step.at])


def _line(step: Step, width: int) -> str:
    after = "" if step.after_ms is None else f"{step.after_ms:+,.0f} ms"
    facts = ", ".join(f"{name} {value}".strip() for name, value in step.facts.items() if value is not None)
    return f"{after:>12}  {step.hop:<{width}}  {facts}"

"""The account: how much was committed, published, claimed, owed, sent and received, and how much is still on the way."""

import tomllib
from typing import Any

from fern.settings import CONSUMERS, PROJECT_ROOT

TOPICS: dict[str, list[str]] = tomllib.loads((PROJECT_ROOT / "infra/topology.toml").read_text())["topics"]


def draw_up(labour: Any, notification: Any, texts: int, labour_claims: Any, dead: int) -> dict[str, int]:
    """Three equations: committed = published, wanted = claimed, owed = sent = texts. The difference is on the way, refused, or
    waits for an operator's decision; a stage that has more than the stage before is unexplained. A text that is superseded or
    waits for consent is not owed. An event that two consumers take is wanted and claimed twice.

    `labour_claims` and `texts` were read before the others, so that nothing in motion seems to have no cause.
    """
    outboxes, states = (labour["outbox"], notification["outbox"]), notification["ledger"]["states"]
    wanted_there = _wanted_by("notification", labour["topics"])
    wanted_back = _wanted_by("labour", notification["topics"]) + _wanted_by("statistics", labour["topics"])
    held = sum(_wanted_by(consumer, service["held"]) for consumer in CONSUMERS for service in (labour, notification))
    claimed_there, claimed_back = notification["claims"]["completed"], labour_claims["completed"]
    sent = sum(states[state] for state in ("SENT", "DELIVERED", "UNDELIVERED"))
    unsettled = sum(states[state] for state in ("PENDING", "SENDING", "IN_DOUBT"))
    given_up = notification["claims"]["discarded"] + labour_claims["discarded"]
    account = {
        **{name: sum(outbox[name] for outbox in outboxes) for name in ("recorded", "published", "waiting", "parked")},
        "discarded": sum(outbox["discarded"] for outbox in outboxes) + given_up,
        "wanted": wanted_there + wanted_back,
        "claimed": claimed_there + claimed_back,
        "repeats": notification["claims"]["repeats"] + labour["claims"]["repeats"],
        "dead": dead,
        "owed": sum(states.values()) - states["SUPERSEDED"] - states["AWAITING_CONSENT"],
        "sent": sent,
        "texts": texts,
        "refused": states["FAILED"],
        "superseded": states["SUPERSEDED"],
        "awaiting_consent": states["AWAITING_CONSENT"],
        "in_doubt": states["IN_DOUBT"],
        "unsettled": unsettled,
    }
    unclaimed = account["wanted"] - account["claimed"] - held - given_up - dead
    account["on_the_way"] = max(account["waiting"], unclaimed) + unsettled  # what waits in an outbox has no claim yet
    surpluses = (claimed_there - wanted_there, claimed_back - wanted_back, texts - sent - unsettled)
    account["unexplained"] = sum(max(0, surplus) for surplus in surpluses)
    return account


def _wanted_by(consumer: str, topics: dict[str, int]) -> int:
    return sum(count for topic, count in topics.items() if consumer in TOPICS.get(topic, ()))

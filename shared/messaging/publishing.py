"""Publishes a batch of outbox rows: rows of one key in order, rows of different keys together, in as few calls as possible."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from messaging.bus import Outgoing, Publisher
from messaging.errors import BusError, BusUnavailable, PublishRejected
from messaging.telemetry import CLIENT, Attributes, batch, messaging_attributes

PUBLISH_SECONDS = (
    5.0  # after which no further call of a batch begins: its transaction must end before the server ends it
)

_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


class Row(NamedTuple):
    """`attributes` are JSON."""

    position: int
    topic: str
    ordering_key: str
    attributes: str
    payload: str
    attempts: int

    @property
    def event_id(self) -> str:
        return _decode_attributes(self.attributes)["ce-id"]

    def outgoing(self) -> Outgoing:
        return Outgoing(self.payload.encode(), _decode_attributes(self.attributes))


class Outcome(NamedTuple):
    """`published` has the bus's message id of each position. `waiting` are rows for which the bus or their topic is unavailable.

    Rows that are in no field were left for the next batch.
    """

    published: dict[int, str]
    rejected: list[tuple[Row, PublishRejected]]
    waiting: list[tuple[Row, BusUnavailable]]


async def publish_in_order(publisher: Publisher, rows: Sequence[Row]) -> Outcome:
    """Publish rows that are sorted by position. An event is not sent before an earlier one of its key was accepted."""
    outcome = Outcome({}, [], [])
    stuck: set[str] = set()  # keys with an event that was not published: their later events must wait
    deadline = time.monotonic() + PUBLISH_SECONDS
    for wave in _waves(rows):
        if time.monotonic() > deadline:
            break
        calls = [(topic, [row for row in group if row.ordering_key not in stuck]) for topic, group in wave.items()]
        outcomes = await asyncio.gather(*(_send(publisher, topic, group, deadline) for topic, group in calls if group))
        for sent, failed in outcomes:
            outcome.published.update(sent)
            for row, error in failed:
                stuck.add(row.ordering_key)
                if isinstance(error, PublishRejected):
                    outcome.rejected.append((row, error))
                elif isinstance(error, BusUnavailable):
                    outcome.waiting.append((row, error))
    return outcome


async def _send(
    publisher: Publisher, topic: str, rows: Sequence[Row], deadline: float
) -> tuple[dict[int, str], list[tuple[Row, BusError | None]]]:
    """Publish in one call. If the bus rejects it, publish one by one, so that a bad message affects its own key only.

    After the deadline rows are left without an error.
    """
    messages = [row.outgoing() for row in rows]

    def about() -> Attributes:
        event_id = messages[0].attributes["ce-id"]
        return messaging_attributes("publish", "send", [topic], len(rows), event_id, rows[0].ordering_key)

    try:
        with batch(f"publish {topic}", CLIENT, [one.attributes.get("ce-traceparent") for one in messages], about):
            message_ids = await publisher.publish(topic, messages)
        return dict(zip((row.position for row in rows), message_ids, strict=True)), []
    except BusUnavailable as error:
        return {}, [(row, error) for row in rows]
    except PublishRejected as error:
        if len(rows) == 1:
            return {}, [(rows[0], error)]
    sent: dict[int, str] = {}
    failed: dict[str, tuple[Row, BusError | None]] = {}
    for row in rows:
        if time.monotonic() > deadline:
            failed.setdefault(row.ordering_key, (row, None))
        elif row.ordering_key not in failed:
            one_sent, one_failed = await _send(publisher, topic, [row], deadline)
            sent |= one_sent
            failed.update({failure[0].ordering_key: failure for failure in one_failed})
    return sent, list(failed.values())


def _waves(rows: Iterable[Row]) -> list[dict[str, list[Row]]]:
    """Group a batch into rounds of one call per topic. The rows of a key share a round until their topic changes; rows after
    the change go into a later round, because calls to different topics are not ordered.
    """
    waves: list[dict[str, list[Row]]] = []
    last: dict[str, tuple[int, str]] = {}
    for row in rows:
        number, topic = last.get(row.ordering_key, (0, row.topic))
        if topic != row.topic:
            number += 1
        last[row.ordering_key] = (number, row.topic)
        if number == len(waves):
            waves.append(defaultdict(list))
        waves[number][row.topic].append(row)
    return waves

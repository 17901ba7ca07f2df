"""Publishes messages that cannot be handled to the dead-letter topics, with the reason.

The messages of a batch go to each `<topic>.dlq` in one call. If the bus rejects one of them, each is published in its own call.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from structlog import get_logger

from messaging import metrics, telemetry
from messaging.bus import Message, Outgoing, Publisher
from messaging.errors import BusError, PublishRejected
from messaging.masking import mask

log = get_logger()

NAMED = 3  # ids in a log line that is about many messages


class Dead(NamedTuple):
    """`reason` is stable, `detail` is a sentence."""

    message: Message
    reason: str
    detail: str


class DeadLetters:
    """Publishes the dead letters of one consumer, whose name is the first part of its subscriptions' names."""

    def __init__(self, consumer: str, publisher: Publisher) -> None:
        self._consumer, self._publisher = consumer, publisher

    async def publish(self, dead: Sequence[Dead]) -> set[str]:
        """Returns the ack ids of the messages that are dead-lettered and must be acknowledged now. A crash before that
        dead-letters them twice and loses nothing.
        """
        topics = defaultdict[str, list[Dead]](list)
        for one in dead:
            topics[one.message.subscription.removeprefix(f"{self._consumer}.")].append(one)
        outcomes = await asyncio.gather(*(self._publish(topic, group) for topic, group in topics.items()))
        return {one.message.ack_id for stored in outcomes for one in stored}

    def leave_to_the_bus(self, refused: Sequence[Message]) -> None:
        """Count messages whose last delivery was nacked. Pub/Sub dead-letters them by itself and tells no process."""
        if refused:
            metrics.dead_lettered(self._consumer, "deliveries-exhausted", len(refused))
            ids = [one.message_id for one in refused[:NAMED]]
            log.error("messages left to the bus to dead-letter", count=len(refused), message_ids=ids)

    async def _publish(self, topic: str, dead: Sequence[Dead]) -> list[Dead]:
        def about() -> telemetry.Attributes:
            """Without the ids of the event and the labour: what cannot be decoded may have anything in their place."""
            first, dlq = dead[0], [f"{topic}.dlq"]
            ids = {"message_id": first.message.message_id, "group": self._consumer}
            return {
                **telemetry.messaging_attributes("dead-letter", "send", dlq, len(dead), **ids),
                "fern.dead_letter.reason": first.reason,
            }

        origins = [one.message.attributes.get("ce-traceparent") for one in dead]
        with telemetry.batch(f"dead-letter {topic}", telemetry.CLIENT, origins, about):
            errors = await self._publish_all(topic, dead)
        stored = [one for one, error in zip(dead, errors, strict=True) if error is None]
        for reason, group in _by_reason(stored).items():
            metrics.dead_lettered(self._consumer, reason, len(group))
            log.error(
                "messages dead-lettered",
                topic=topic,
                reason=reason,
                count=len(group),
                detail=group[0].detail[:250],
                message_ids=[one.message.message_id for one in group[:NAMED]],
            )
        if failed := [error for error in errors if error is not None]:
            log.error("could not dead-letter messages", topic=topic, count=len(failed), error=str(failed[0])[:300])
        return stored

    async def _publish_all(self, topic: str, dead: Sequence[Dead]) -> Sequence[BusError | None]:
        """Returns the error of each."""
        try:
            await self._publisher.publish(f"{topic}.dlq", [self._outgoing(topic, one) for one in dead])
        except PublishRejected:
            return await asyncio.gather(*(self._publish_one(topic, one) for one in dead))
        except BusError as error:
            return [error] * len(dead)
        return [None] * len(dead)

    async def _publish_one(self, topic: str, one: Dead) -> BusError | None:
        outgoing = self._outgoing(topic, one)
        try:
            try:
                await self._publisher.publish(f"{topic}.dlq", [outgoing])
            except PublishRejected:  # too many attributes: only ours are kept, because they have the reason
                await self._publisher.publish(f"{topic}.dlq", [Outgoing(outgoing.data, self._why(topic, one))])
        except BusError as error:
            return error
        return None

    def _outgoing(self, topic: str, one: Dead) -> Outgoing:
        return Outgoing(one.message.data, {**one.message.attributes, **self._why(topic, one)})

    def _why(self, topic: str, one: Dead) -> dict[str, str]:
        return {
            "dead-letter-reason": one.reason,
            "dead-letter-detail": mask(one.detail)[:250],
            "dead-letter-consumer": self._consumer,
            "dead-letter-topic": topic,
            "dead-letter-message-id": one.message.message_id,
        }


def _by_reason(dead: Sequence[Dead]) -> dict[str, list[Dead]]:
    reasons = defaultdict[str, list[Dead]](list)
    for one in dead:
        reasons[one.reason].append(one)
    return reasons

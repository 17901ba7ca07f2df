"""The broker: fan-out from a topic to its subscriptions, acks, seeks, expiry and dead letters.

Memory follows the disk: a message is delivered only after it is stored. A subscription that exists when a publish arrives gets
it, one created later does not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Final

from grpc import StatusCode

from pubsub_emulator import sql
from pubsub_emulator.catalog import Catalog, Topic, now
from pubsub_emulator.errors import CallRefused
from pubsub_emulator.faults import Fault, Faults
from pubsub_emulator.message import Batch, Delivery, Message
from pubsub_emulator.policy import seconds
from pubsub_emulator.store import Store
from pubsub_emulator.subscription import Subscription
from pubsub_emulator.wire import PublishRequest, Raw


class Broker:
    """Implements `subscription.Keeper`."""

    def __init__(self, store: Store) -> None:
        """Load the state that the last process stored, also after a crash."""
        self._store: Final = store
        on = {name: Fault(**json.loads(settings)) for name, settings in store.rows("SELECT name, settings FROM fault")}
        self.faults = Faults(on)
        self.catalog: Final = Catalog(store, self)
        self._running: set[asyncio.Task[None]] = set()
        self._load_backlog()
        last = max((row[0] or 0 for row in store.rows("SELECT max(last) FROM batch")), default=0)
        # Ids of messages that no subscription held are not stored, so a new process starts from the clock.
        self._next_message_id = max(last + 1, now())

    def _load_backlog(self) -> None:
        messages = {message.id: message for batch in self._store.held_batches() for message in batch.messages()}
        owed: dict[int, list[Message]] = {}
        failures: dict[int, dict[int, int]] = {}
        rows = self._store.rows("SELECT message, subscription, failures FROM backlog")
        for message_id, subscription_id, count in rows:
            owed.setdefault(subscription_id, []).append(messages[message_id])
            if count:
                failures.setdefault(subscription_id, {})[message_id] = count
        for subscription in self.catalog.subscriptions.values():
            subscription.enqueue(owed.get(subscription.id, ()), failures.get(subscription.id, {}))

    # ── messages come in ──

    async def publish(self, topic: Topic, request: Raw, encoded: bytes) -> list[str]:
        """Publish a request to a topic. Returns the message ids once the messages are on disk."""
        batch = self._batch(topic, request)
        await self._keep(topic, batch, encoded)
        return list(map(str, batch.ids))

    def _batch(self, topic: Topic, request: Raw) -> Batch:
        batch = Batch(self._next_message_id, topic.id, now(), request)
        self._next_message_id += len(request.messages)
        return batch

    async def _keep(self, topic: Topic, batch: Batch, encoded: bytes, *more: sql.Statement) -> None:
        """Store the batch, with `more` in the same transaction, and then enqueue it."""
        routes = [(subscription, subscription.choose(batch)) for subscription in topic.subscriptions]
        owed = {subscription.id: _ids(chosen) for subscription, chosen in routes if chosen}
        kept = [sql.publish(batch, encoded, owed)] if owed or topic.retention else []
        if kept or more:
            await self._store.submit(*kept, *more)
        for subscription, chosen in routes:
            if self.catalog.subscriptions.get(subscription.name) is subscription and not subscription.config.detached:
                subscription.enqueue(chosen)

    # ── messages are settled ──

    def acknowledge(self, subscription: Subscription, ack_ids: Sequence[str]) -> tuple[Awaitable[None], list[str]]:
        """Ack messages. Returns a future that is done when the ack is on disk, and the ack ids that came too late."""
        if self.faults.active and not subscription.exactly_once:
            topic = subscription.config.topic
            ack_ids = [ack_id for ack_id in ack_ids if not self.faults.strikes("forget-acks", topic)]
        done, stale = subscription.ack(ack_ids)
        return self._store.submit(self._ack(subscription, done)), stale

    def _ack(self, subscription: Subscription, messages: list[Message]) -> sql.Statement:
        reclaimable = () if self.catalog.retains(subscription) else {message.batch.id for message in messages}
        return sql.ack(subscription.id, [message.id for message in messages], reclaimable)

    async def seek(self, subscription: Subscription, since: int) -> None:
        """Ack every message published before `since` (in microseconds), and bring back the later ones that are still stored."""
        batches = await self._store.retained(subscription.topic_id, since)
        wanted = [message for batch in batches for message in _unpacked(subscription.choose(batch))]
        subscription.reset(wanted)
        await self._store.submit(
            sql.owe_nothing(subscription.id),
            sql.owe(subscription.id, [message.id for message in wanted]),
            *self.catalog.reclaim_all(subscription),
        )

    def expire(self, moment: int) -> None:
        """Delete the messages that are older than their retention at this moment (in microseconds), and shrink the file."""
        changes: list[sql.Statement] = []
        for subscription in self.catalog.subscriptions.values():
            oldest = moment - int(seconds(subscription.config.message_retention_duration) * 1e6)
            if old := subscription.drop_older(oldest):
                changes.append(self._ack(subscription, old))
        changes += [
            sql.reclaim_topic(t.id, moment - int(t.retention * 1e6))
            for t in self.catalog.topics.values()
            if t.retention
        ]
        self._store.submit(*changes, sql.SHRINK)

    def end_consumers(self) -> None:
        for subscription in self.catalog.subscriptions.values():
            subscription.end_consumers(CallRefused(StatusCode.UNAVAILABLE, "the emulator is stopping"))

    # ── called by subscriptions ──

    def dead_letter(self, subscription: Subscription, delivery: Delivery) -> bool:
        topic = self.catalog.topics.get(subscription.config.dead_letter_policy.dead_letter_topic)
        if topic is None:
            return False
        request = PublishRequest(topic=topic.config.name)
        raw = request.messages.add()
        delivery.message.copy_to(raw)
        prefix = "CloudPubSubDeadLetterSource"
        project, _, name = subscription.name.removeprefix("projects/").partition("/subscriptions/")
        raw.attributes[f"{prefix}DeliveryCount"] = str(delivery.failures)
        raw.attributes[f"{prefix}Subscription"] = name
        raw.attributes[f"{prefix}SubscriptionProject"] = project
        raw.attributes[f"{prefix}TopicPublishTime"] = raw.publish_time.ToJsonString()
        batch = self._batch(topic, request)
        acked = self._ack(subscription, [delivery.message])
        # One transaction, so that a crash neither loses the message nor leaves it in both places.
        self._run(self._keep(topic, batch, request.SerializeToString(), acked))
        return True

    def remember_failures(self, subscription: Subscription, delivery: Delivery) -> None:
        self._store.submit(sql.remember_failures(subscription.id, delivery.message.id, delivery.failures))

    def restore(self, subscription: Subscription, messages: list[Message]) -> None:
        batches = {message.batch.id: message.batch for message in messages}
        owed = {subscription.id: [message.id for message in messages]}
        self._store.submit(*[sql.publish(batch, batch.request.SerializeToString(), owed) for batch in batches.values()])

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def set_faults(self, on: dict[str, Fault]) -> None:
        self.faults.replace(on)
        await self._store.submit(*sql.put_faults({name: fault.to_json() for name, fault in on.items()}))


def _ids(chosen: Batch | list[Message]) -> list[int]:
    return list(chosen.ids) if isinstance(chosen, Batch) else [message.id for message in chosen]


def _unpacked(chosen: Batch | list[Message]) -> list[Message]:
    return chosen.messages() if isinstance(chosen, Batch) else chosen

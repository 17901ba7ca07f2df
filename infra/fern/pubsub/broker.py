"""Topics, subscriptions, and how a message gets from one to the other.

Memory follows the disk: a message is delivered only after it is stored. A subscription that exists when a publish arrives gets
it, one created later does not.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from grpc import StatusCode

from fern.pubsub import sql
from fern.pubsub.errors import Refused, not_found
from fern.pubsub.faults import Fault, Faults
from fern.pubsub.message import Batch, Delivery, Message
from fern.pubsub.policy import DELETED_TOPIC, check_name, seconds
from fern.pubsub.store import Store
from fern.pubsub.subscription import Subscription
from fern.pubsub.wire import PublishRequest, Raw
from fern.pubsub.wire import Subscription as SubscriptionConfig
from fern.pubsub.wire import Topic as TopicConfig

Routes = list[tuple[Subscription, list[Message]]]
"""Which subscription gets which messages."""


class Topic:
    def __init__(self, id: int, config: Raw) -> None:
        self.id: Final = id
        self.config = config
        self.subscriptions: list[Subscription] = []

    @property
    def retention(self) -> float:
        """Seconds for which messages are kept that everybody has acked, for those who seek back; 0 keeps none."""
        keepers = [
            seconds(s.config.message_retention_duration) for s in self.subscriptions if s.config.retain_acked_messages
        ]
        return max([seconds(self.config.message_retention_duration), *keepers])


class Broker:
    """Implements `subscription.Keeper`."""

    def __init__(self, store: Store) -> None:
        """Rebuild what was there when the last process stopped, however it stopped."""
        self.store: Final = store
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.on_change: Callable[[Subscription], None] = lambda subscription: None
        """Told when a subscription is new, changed or gone."""
        self._running: set[asyncio.Task[None]] = set()
        on = {name: Fault(**json.loads(settings)) for name, settings in store.rows("SELECT name, settings FROM fault")}
        self.faults = Faults(on)
        for topic_id, config in store.rows("SELECT id, config FROM topic"):
            topic = Topic(topic_id, TopicConfig.FromString(config))
            self.topics[topic.config.name] = topic
        for subscription_id, topic_id, config in store.rows("SELECT id, topic, config FROM subscription"):
            self._attach(Subscription(subscription_id, SubscriptionConfig.FromString(config), topic_id, self))
        self._load_backlog()
        self._topic_ids = _ids_after(store, "topic")
        self._subscription_ids = _ids_after(store, "subscription")
        last = max((row[0] or 0 for row in store.rows("SELECT max(last) FROM batch")), default=0)
        # Messages that nobody held left no trace of their ids, so a new process starts from the clock.
        self._next_message_id = max(last + 1, time.time_ns() // 1000)

    def _load_backlog(self) -> None:
        messages = {message.id: message for batch in self.store.batches() for message in batch.messages()}
        owed: dict[int, list[Message]] = {}
        failures: dict[int, dict[int, int]] = {}
        for message_id, subscription_id, count in self.store.rows(
            "SELECT message, subscription, failures FROM backlog"
        ):
            owed.setdefault(subscription_id, []).append(messages[message_id])
            if count:
                failures.setdefault(subscription_id, {})[message_id] = count
        for subscription in self.subscriptions.values():
            subscription.enqueue(owed.get(subscription.id, ()), failures.get(subscription.id))

    def _attach(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.name] = subscription
        if (topic := self.topics.get(subscription.config.topic)) and not subscription.config.detached:
            topic.subscriptions.append(subscription)

    # ── looking up ──

    def topic(self, name: str, field: str = "topic") -> Topic:
        check_name("topics", field, name)
        if topic := self.topics.get(name):
            return topic
        raise not_found(f"{field}: {name} does not exist")

    def subscription(self, name: str, field: str = "subscription") -> Subscription:
        check_name("subscriptions", field, name)
        if subscription := self.subscriptions.get(name):
            return subscription
        raise not_found(f"{field}: {name} does not exist")

    # ── topics and subscriptions change ──

    async def create_topic(self, config: Raw) -> None:
        if config.name in self.topics:
            raise Refused(StatusCode.ALREADY_EXISTS, f"name: {config.name} already exists")
        self._topic_ids += 1
        topic = self.topics[config.name] = Topic(self._topic_ids, config)
        await self.save_topic(topic)

    async def save_topic(self, topic: Topic) -> None:
        await self.store.submit(sql.put_topic(topic.id, topic.config.name, topic.config.SerializeToString()))

    async def delete_topic(self, topic: Topic) -> None:
        """Its subscriptions keep what they hold."""
        del self.topics[topic.config.name]
        changes = [sql.delete_topic(topic.id), sql.reclaim_topic(topic.id, before=_now())]
        for subscription in self.subscriptions.values():
            if subscription.config.topic == topic.config.name:
                subscription.config.topic = DELETED_TOPIC
                changes.append(_put(subscription))
        await self.store.submit(*changes)

    async def create_subscription(self, config: Raw) -> None:
        topic = self.topic(config.topic)
        if config.HasField("dead_letter_policy"):
            self.topic(config.dead_letter_policy.dead_letter_topic, "dead_letter_policy.dead_letter_topic")
        if config.name in self.subscriptions:
            raise Refused(StatusCode.ALREADY_EXISTS, f"name: {config.name} already exists")
        self._subscription_ids += 1
        subscription = Subscription(self._subscription_ids, config, topic.id, self)
        self._attach(subscription)
        await self.store.submit(_put(subscription))
        self.on_change(subscription)

    async def update_subscription(self, subscription: Subscription, config: Raw) -> None:
        if config.HasField("dead_letter_policy"):
            self.topic(config.dead_letter_policy.dead_letter_topic, "dead_letter_policy.dead_letter_topic")
        subscription.config = config
        await self.store.submit(_put(subscription))
        self.on_change(subscription)

    async def delete_subscription(self, subscription: Subscription) -> None:
        del self.subscriptions[subscription.name]
        self._let_go(subscription)
        subscription.end(not_found(f"subscription: {subscription.name} was deleted"))
        self.on_change(subscription)
        await self.store.submit(
            sql.delete_subscription(subscription.id), sql.owe_nothing(subscription.id), *self._reclaim_all(subscription)
        )

    async def detach(self, subscription: Subscription) -> None:
        """It gets nothing from its topic any more, and what it held is gone."""
        subscription.config.detached = True
        self._let_go(subscription)
        subscription.end(detached(subscription))
        self.on_change(subscription)
        await self.store.submit(_put(subscription), sql.owe_nothing(subscription.id), *self._reclaim_all(subscription))

    def _let_go(self, subscription: Subscription) -> None:
        topic = self.topics.get(subscription.config.topic)
        if topic and subscription in topic.subscriptions:
            topic.subscriptions.remove(subscription)

    def _reclaim_all(self, subscription: Subscription) -> list[sql.Statement]:
        topic = self.topics.get(subscription.config.topic)
        return [] if topic and topic.retention else [sql.reclaim_topic(subscription.topic_id, before=_now())]

    # ── messages come in ──

    async def publish(self, topic: Topic, request: Raw) -> list[str]:
        """Returns the message ids once the messages are on disk."""
        batch = self._batch(topic, request)
        messages = batch.messages()
        await self._keep(batch, _routes(topic, messages), retain=topic.retention > 0)
        return [str(message.id) for message in messages]

    def _batch(self, topic: Topic, request: Raw) -> Batch:
        batch = Batch(self._next_message_id, topic.id, _now(), request)
        self._next_message_id += len(request.messages)
        return batch

    async def _keep(self, batch: Batch, routes: Routes, retain: bool, *more: sql.Statement) -> None:
        changes = list(more)
        if retain or any(wanted for _, wanted in routes):
            changes.append(sql.keep(batch))
            changes += [sql.owe(s.id, [message.id for message in wanted]) for s, wanted in routes if wanted]
        if changes:
            await self.store.submit(*changes)
        for subscription, wanted in routes:
            if self.subscriptions.get(subscription.name) is subscription and not subscription.config.detached:
                subscription.enqueue(wanted)

    # ── messages are settled ──

    def acknowledge(self, subscription: Subscription, ack_ids: Sequence[str]) -> tuple[Awaitable[None], list[str]]:
        """Returns when it is on disk, and the ack ids that came too late."""
        if self.faults.active:
            topic = subscription.config.topic
            ack_ids = [ack_id for ack_id in ack_ids if not self.faults.strikes("forget-acks", topic)]
        done, stale = subscription.ack(ack_ids)
        return self.store.submit(*self._settle(subscription, done)), stale

    def _settle(self, subscription: Subscription, messages: list[Message]) -> list[sql.Statement]:
        topic = self.topics.get(subscription.config.topic)
        settled = sql.settle(subscription.id, [message.id for message in messages])
        if topic and topic.retention:
            return [settled]
        return [settled, sql.reclaim({message.batch.id for message in messages})]

    async def seek(self, subscription: Subscription, since: int) -> None:
        """Ack everything from before `since` (in microseconds), and bring back everything after it that is still kept."""
        batches = await self.store.retained(subscription.topic_id, since)
        wanted = [message for batch in batches for message in _matching(subscription, batch.messages())]
        subscription.reset(wanted)
        await self.store.submit(
            sql.owe_nothing(subscription.id),
            sql.owe(subscription.id, [message.id for message in wanted]),
            *self._reclaim_all(subscription),
        )

    def expire(self) -> None:
        """Forget messages that are older than their subscription's or topic's retention, and give free space back."""
        now = _now()
        changes: list[sql.Statement] = []
        for subscription in self.subscriptions.values():
            oldest = now - int(seconds(subscription.config.message_retention_duration) * 1e6)
            pending = [delivery.message for delivery in subscription.pending.values()]
            if old := [message for message in pending if message.batch.published_at < oldest]:
                subscription.drop(old)
                changes += self._settle(subscription, old)
        changes += [sql.reclaim_topic(t.id, now - int(t.retention * 1e6)) for t in self.topics.values() if t.retention]
        self.store.submit(*changes, sql.SHRINK)

    def send_everybody_away(self) -> None:
        for subscription in self.subscriptions.values():
            subscription.send_away(Refused(StatusCode.UNAVAILABLE, "the emulator is stopping"))

    # ── what subscriptions ask of us ──

    def dead_letter(self, subscription: Subscription, delivery: Delivery) -> bool:
        topic = self.topics.get(subscription.config.dead_letter_policy.dead_letter_topic)
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
        settled = self._settle(subscription, [delivery.message])
        # Both in one change: it is never in neither place, nor for good in both.
        self._run(self._keep(batch, _routes(topic, batch.messages()), topic.retention > 0, *settled))
        return True

    def remember_failures(self, subscription: Subscription, delivery: Delivery) -> None:
        self.store.submit(sql.remember_failures(subscription.id, delivery.message.id, delivery.failures))

    def restore(self, subscription: Subscription, messages: list[Message]) -> None:
        self.store.submit(
            *[sql.keep(batch) for batch in {message.batch.id: message.batch for message in messages}.values()],
            sql.owe(subscription.id, [message.id for message in messages]),
        )

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def set_faults(self, on: dict[str, Fault]) -> None:
        self.faults.replace(on)
        await self.store.submit(*sql.put_faults({name: fault.to_json() for name, fault in on.items()}))


def detached(subscription: Subscription) -> Refused:
    return Refused(StatusCode.FAILED_PRECONDITION, f"subscription: {subscription.name} is detached from its topic")


def _routes(topic: Topic, messages: list[Message]) -> Routes:
    return [(subscription, _matching(subscription, messages)) for subscription in topic.subscriptions]


def _matching(subscription: Subscription, messages: list[Message]) -> list[Message]:
    if subscription.filter.everything:
        return messages
    return [message for message in messages if subscription.filter.matches(message.raw.attributes)]


def _put(subscription: Subscription) -> sql.Statement:
    return sql.put_subscription(
        subscription.id, subscription.name, subscription.topic_id, subscription.config.SerializeToString()
    )


def _ids_after(store: Store, table: str) -> int:
    return max((row[0] for row in store.rows(f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'")), default=0)  # noqa: S608


def _now() -> int:
    return time.time_ns() // 1000

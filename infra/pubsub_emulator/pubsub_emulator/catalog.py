"""Topics and subscriptions: created, changed, deleted and looked up. Their messages are the broker's work."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from grpc import StatusCode

from pubsub_emulator import sql
from pubsub_emulator.errors import CallRefused, not_found
from pubsub_emulator.policy import DELETED_TOPIC, check_name, seconds
from pubsub_emulator.store import Store
from pubsub_emulator.subscription import Keeper, Subscription
from pubsub_emulator.wire import Raw
from pubsub_emulator.wire import Subscription as SubscriptionConfig
from pubsub_emulator.wire import Topic as TopicConfig


@dataclass(eq=False, slots=True)
class Topic:
    id: Final[int]
    config: Raw
    subscriptions: list[Subscription] = field(default_factory=list)

    @property
    def retention(self) -> float:
        """Seconds for which messages are kept after every subscription has acked them, for a seek back; 0 keeps none."""
        keepers = [one.config for one in self.subscriptions if one.config.retain_acked_messages]
        return max(seconds(config.message_retention_duration) for config in (self.config, *keepers))


class Catalog:
    def __init__(self, store: Store, keeper: Keeper) -> None:
        self._store: Final = store
        self._keeper: Final = keeper
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.on_change: Callable[[Subscription], None] = lambda subscription: None
        """Called when a subscription was created, changed or deleted."""
        for topic_id, config in store.rows("SELECT id, config FROM topic"):
            topic = Topic(topic_id, TopicConfig.FromString(config))
            self.topics[topic.config.name] = topic
        for subscription_id, topic_id, config in store.rows("SELECT id, topic, config FROM subscription"):
            self._attach(Subscription(subscription_id, SubscriptionConfig.FromString(config), topic_id, keeper))
        self._topic_ids = _ids_after(store, "topic")
        self._subscription_ids = _ids_after(store, "subscription")

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
            raise CallRefused(StatusCode.ALREADY_EXISTS, f"name: {config.name} already exists")
        self._topic_ids += 1
        topic = self.topics[config.name] = Topic(self._topic_ids, config)
        await self.save_topic(topic)

    async def save_topic(self, topic: Topic) -> None:
        await self._store.submit(sql.put_topic(topic.id, topic.config.name, topic.config.SerializeToString()))

    async def delete_topic(self, topic: Topic) -> None:
        """Delete a topic. Its subscriptions keep the messages that they hold."""
        del self.topics[topic.config.name]
        changes = [sql.delete_topic(topic.id), sql.reclaim_topic(topic.id, before=now())]
        for subscription in self.subscriptions.values():
            if subscription.config.topic == topic.config.name:
                subscription.config.topic = DELETED_TOPIC
                changes.append(_put(subscription))
        await self._store.submit(*changes)

    async def create_subscription(self, config: Raw) -> None:
        topic = self.topic(config.topic)
        if config.HasField("dead_letter_policy"):
            self.topic(config.dead_letter_policy.dead_letter_topic, "dead_letter_policy.dead_letter_topic")
        if config.name in self.subscriptions:
            raise CallRefused(StatusCode.ALREADY_EXISTS, f"name: {config.name} already exists")
        self._subscription_ids += 1
        subscription = Subscription(self._subscription_ids, config, topic.id, self._keeper)
        self._attach(subscription)
        await self._store.submit(_put(subscription))
        self.on_change(subscription)

    async def update_subscription(self, subscription: Subscription, config: Raw) -> None:
        if config.HasField("dead_letter_policy"):
            self.topic(config.dead_letter_policy.dead_letter_topic, "dead_letter_policy.dead_letter_topic")
        was_pulled = not subscription.config.push_config.push_endpoint
        subscription.config = config
        if was_pulled and config.push_config.push_endpoint:
            subscription.end_consumers(pushed(subscription))
        await self._store.submit(_put(subscription))
        self.on_change(subscription)

    async def delete_subscription(self, subscription: Subscription) -> None:
        del self.subscriptions[subscription.name]
        self._let_go(subscription)
        subscription.end(not_found(f"subscription: {subscription.name} was deleted"))
        self.on_change(subscription)
        deleted = sql.delete_subscription(subscription.id), sql.owe_nothing(subscription.id)
        await self._store.submit(*deleted, *self.reclaim_all(subscription))

    async def detach(self, subscription: Subscription) -> None:
        """Detach a subscription from its topic: it gets no more messages, and its backlog is deleted."""
        subscription.config.detached = True
        self._let_go(subscription)
        subscription.end(detached(subscription))
        self.on_change(subscription)
        await self._store.submit(_put(subscription), sql.owe_nothing(subscription.id), *self.reclaim_all(subscription))

    def _let_go(self, subscription: Subscription) -> None:
        topic = self.topics.get(subscription.config.topic)
        if topic and subscription in topic.subscriptions:
            topic.subscriptions.remove(subscription)

    def retains(self, subscription: Subscription) -> bool:
        """Whether its topic keeps messages that every subscription has acked."""
        topic = self.topics.get(subscription.config.topic)
        return topic is not None and topic.retention > 0

    def reclaim_all(self, subscription: Subscription) -> list[sql.Statement]:
        """The statements to store when a subscription drops many messages at once."""
        return [] if self.retains(subscription) else [sql.reclaim_topic(subscription.topic_id, before=now())]


def detached(subscription: Subscription) -> CallRefused:
    return CallRefused(StatusCode.FAILED_PRECONDITION, f"subscription: {subscription.name} is detached from its topic")


def pushed(subscription: Subscription) -> CallRefused:
    return CallRefused(StatusCode.FAILED_PRECONDITION, f"subscription: {subscription.name} is pushed, not pulled")


def _put(subscription: Subscription) -> sql.Statement:
    config = subscription.config.SerializeToString()
    return sql.put_subscription(subscription.id, subscription.name, subscription.topic_id, config)


def _ids_after(store: Store, table: str) -> int:
    return max((row[0] for row in store.rows(f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'")), default=0)  # noqa: S608


def now() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000

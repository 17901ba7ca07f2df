"""One subscription in memory: its ready messages, its leases and their deadlines, and its waiting consumers.

Everything here runs on the event loop and touches no disk; what must be stored goes through `Keeper`. After a restart it is
rebuilt from the store: leases are forgotten, so what was unacked is ready again at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from pubsub_emulator.errors import CallRefused
from pubsub_emulator.faults import Faults
from pubsub_emulator.filters import Filter
from pubsub_emulator.leases import Alarm, Consumer, Handed, Leases, message_of
from pubsub_emulator.message import Batch, Delivery, Message, Run
from pubsub_emulator.policy import backoff
from pubsub_emulator.ready import Ready
from pubsub_emulator.wire import Raw


class Keeper(Protocol):
    """What a subscription needs from the broker."""

    faults: Faults

    def dead_letter(self, subscription: Subscription, delivery: Delivery) -> bool:
        """Forward a message to the dead-letter topic; False if the topic was deleted."""

    def remember_failures(self, subscription: Subscription, delivery: Delivery) -> None: ...

    def restore(self, subscription: Subscription, messages: list[Message]) -> None:
        """Store acked messages as unacked again, because their ordering key is replayed."""


class Subscription:
    def __init__(self, id: int, config: Raw, topic_id: int, keeper: Keeper) -> None:
        self.id: Final = id
        self.config = config
        self.topic_id: Final = topic_id
        self.filter: Final = Filter.parse(config.filter)
        self.pending: dict[int, Delivery] = {}
        """Every unacked message by its id, except those that still wait inside a `Run`."""
        self._keeper: Final = keeper
        self._ready: Final = Ready()
        self._leases: Final = Leases(id)
        self._consumers: deque[Consumer] = deque()
        self._alarm: Final = Alarm(self._on_deadline)

    @property
    def name(self) -> str:
        return str(self.config.name)

    @property
    def exactly_once(self) -> bool:
        return bool(self.config.enable_exactly_once_delivery)

    @property
    def unacked(self) -> int:
        return len(self.pending) + sum(len(run) for run in self._ready.runs())

    @property
    def leased(self) -> int:
        return len(self._leases)

    @property
    def oldest(self) -> int | None:
        """When the oldest unacked message was published, in microseconds."""
        batches = [delivery.message.batch for delivery in self.pending.values()]
        batches += [run.batch for run in self._ready.runs()]
        return min((batch.published_at for batch in batches), default=None)

    # ── messages come in ──

    def choose(self, batch: Batch) -> Batch | list[Message]:
        """The messages of a publish that this subscription gets: the batch itself, unless single messages must be examined."""
        if self.filter.everything:
            keyed = self.config.enable_message_ordering and batch.request.messages[0].ordering_key
            return batch.messages() if keyed or self._keeper.faults.active else batch
        return [message for message in batch.messages() if self.filter.matches(message.raw.attributes)]

    def enqueue(self, chosen: Batch | Iterable[Message], failures: Mapping[int, int] = MappingProxyType({})) -> None:
        if isinstance(chosen, Batch):
            self._ready.queue.append(Run(chosen))
            self.dispatch()
            return
        faults = self._keeper.faults
        for message in chosen:
            delivery = self.pending[message.id] = Delivery(message, failures.get(message.id, 0))
            if self.config.enable_message_ordering and message.raw.ordering_key:
                self._ready.join_lane(delivery)
            if faults.active and faults.strikes("delay", self.config.topic):
                self._park(delivery, faults.delay)
            else:
                self._ready.offer(delivery)
        self.dispatch()

    def reset(self, messages: Iterable[Message]) -> None:
        """Drop everything and start again with exactly these messages."""
        for delivery in self.pending.values():
            self._leases.end(delivery)
            delivery.acked = True
        self.pending.clear()
        self._ready.clear()
        self.enqueue(messages)

    def drop_older(self, oldest: int) -> list[Message]:
        """Drop what was published before this time (in microseconds), and return it."""
        if any(run.batch.published_at < oldest for run in self._ready.runs()):
            self._unpack()
        old = [one for one in self.pending.values() if one.message.batch.published_at < oldest]
        for delivery in old:
            self._forget(delivery)
            self._ready.remove(delivery)
        return [delivery.message for delivery in old]

    def _unpack(self) -> None:
        self.pending.update((delivery.message.id, delivery) for delivery in self._ready.unpack())

    # ── messages go out ──

    def join(self, consumer: Consumer) -> None:
        self._consumers.append(consumer)
        self.dispatch()

    def leave(self, consumer: Consumer) -> None:
        """Remove a consumer. Messages not yet sent to it are ready again at once; those sent stay leased until the deadline."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        if consumer.batch:
            batch, consumer.batch = consumer.batch, []
            self.give_back(batch)

    def give_back(self, batch: Sequence[Handed]) -> None:
        """Undo a hand-over that reached no client: it does not count as a delivery attempt."""
        for ack_id, delivery in reversed(batch):
            if delivery.ack_id == ack_id:
                self._leases.end(delivery)
                self._rewind(delivery)
                self._ready.offer(delivery, first=True)
        self.dispatch()

    def dispatch(self) -> None:
        """Hand ready messages to the consumers that have room, in turn."""
        tried = 0
        while self._ready and tried < len(self._consumers):
            consumer = self._consumers[0]
            self._consumers.rotate(-1)
            messages, size = consumer.room()
            if self._keeper.faults.active and self._keeper.faults.strikes("reorder", self.config.topic):
                self._unpack()
                self._ready.shuffle()
            if messages > 0 and (taken := self._ready.take(messages, size)):
                consumer.hand(self._lease(consumer, taken))
                tried = 0
            else:
                tried += 1

    def _lease(self, consumer: Consumer, taken: list[Delivery]) -> list[Handed]:
        deadline, batch = self._leases.grant(consumer, taken)
        self._alarm.at(deadline, batch)
        self.pending.update((delivery.message.id, delivery) for delivery in taken)
        faults = self._keeper.faults
        if faults.active and not self.exactly_once:
            struck = [one for one in taken if not one.lane and faults.strikes("duplicate", self.config.topic)]
            return batch + [self._leases.copy(delivery) for delivery in struck]
        return batch

    # ── messages are settled ──

    def ack(self, ack_ids: Sequence[str]) -> tuple[list[Message], list[str]]:
        """Ack messages. Returns those that are now done, and the ack ids that came too late."""
        done: list[Message] = []
        stale: list[str] = []
        for ack_id, delivery in self._leases.look_up(ack_ids):
            if delivery is None and not self.exactly_once:
                delivery = self._late(ack_id)
            elif delivery is None:
                stale.append(ack_id)
            if delivery is not None and not delivery.acked:
                self._forget(delivery)
                self._ready.settled(delivery)
                done.append(delivery.message)
        self.dispatch()
        return done, stale

    def modify_deadline(self, ack_ids: Sequence[str], seconds: int) -> list[str]:
        """Extend the leases, or with 0 seconds give them up. Returns the ack ids that came too late."""
        resolved = self._leases.look_up(ack_ids)
        leased = [(ack_id, delivery) for ack_id, delivery in resolved if delivery is not None]
        if seconds:
            deadline = asyncio.get_running_loop().time() + seconds
            for _, delivery in leased:
                delivery.deadline = deadline
            self._alarm.at(deadline, leased)
        else:
            self._fail(delivery for _, delivery in leased)
        return [ack_id for ack_id, delivery in resolved if delivery is None] if self.exactly_once else []

    def end(self, reason: CallRefused) -> None:
        """The subscription was deleted or detached."""
        self.end_consumers(reason)
        self._alarm.stop()
        self.reset([])

    def end_consumers(self, reason: CallRefused) -> None:
        for consumer in self._consumers:
            consumer.end(reason)
        self._consumers.clear()

    def _late(self, ack_id: str) -> Delivery | None:
        """The delivery of an ack id without a lease, if its ack still counts. Without exactly-once it does, even after a restart.
        With an ordering key it does not, because the message is already part of a replay."""
        delivery = self.pending.get(message_of(ack_id, self.id) or 0)
        return None if delivery is None or delivery.lane else delivery

    def _forget(self, delivery: Delivery) -> None:
        del self.pending[delivery.message.id]
        self._leases.end(delivery)
        delivery.acked = True

    # ── messages come back ──

    def _fail(self, deliveries: Iterable[Delivery]) -> None:
        policy = self.config.dead_letter_policy if self.config.HasField("dead_letter_policy") else None
        for delivery in deliveries:
            if not delivery.ack_id:  # replayed already, because of an earlier one of its key
                continue
            self._leases.end(delivery)
            delivery.failures += 1
            self._rewind(delivery)
            if policy is not None:
                if delivery.failures >= policy.max_delivery_attempts and self._keeper.dead_letter(self, delivery):
                    self._forget(delivery)
                    self._ready.remove(delivery)
                    continue
                self._keeper.remember_failures(self, delivery)
            if delay := backoff(self.config, delivery.failures):
                self._park(delivery, delay)
            else:
                self._ready.offer(delivery)
        self.dispatch()

    def _rewind(self, delivery: Delivery) -> None:
        """With an ordering key, every message handed out after this one is delivered again as well, also those already acked."""
        if delivery.lane is None:
            return
        revived = []
        for again in delivery.lane.rewind(delivery):
            self._leases.end(again)
            if again.acked:
                again.acked = False
                self.pending[again.message.id] = again
                revived.append(again.message)
        if revived:
            self._keeper.restore(self, revived)

    def _park(self, delivery: Delivery, delay: float) -> None:
        delivery.deadline = asyncio.get_running_loop().time() + delay
        if delivery.lane:
            delivery.lane.not_before = max(delivery.lane.not_before, delivery.deadline)
        self._alarm.at(delivery.deadline, [("", delivery)])

    def _on_deadline(self, due: list[Handed]) -> None:
        for ack_id, delivery in due:
            if not ack_id:
                self._ready.offer(delivery)  # its backoff is over
        self._fail(delivery for ack_id, delivery in due if ack_id)

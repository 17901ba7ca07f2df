"""What a subscription can hand out now: messages, whole publishes, and the ordering keys whose turn it is."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque

from pubsub_emulator.message import Delivery, Lane, Run


class Ready:
    """First come, first served; a message that comes back queues up again, so that one bad message cannot starve the others."""

    def __init__(self) -> None:
        self.queue: deque[Delivery | Run | Lane] = deque()
        self._lanes: dict[str, Lane] = {}

    def __bool__(self) -> bool:
        return bool(self.queue)

    def clear(self) -> None:
        self.queue.clear()
        self._lanes.clear()

    def runs(self) -> list[Run]:
        return [entry for entry in self.queue if isinstance(entry, Run)]

    def unpack(self) -> list[Delivery]:
        """Replace every run by its single deliveries, and return those."""
        deliveries = []
        for run in self.runs():
            deliveries += run.hand_out(len(run), sys.maxsize)
        self.queue = deque(entry for entry in self.queue if not isinstance(entry, Run))
        self.queue.extend(deliveries)
        return deliveries

    def shuffle(self) -> None:
        entries = list(self.queue)
        random.shuffle(entries)
        self.queue = deque(entries)

    def join_lane(self, delivery: Delivery) -> None:
        """Append a delivery to the lane of its ordering key."""
        lane = delivery.lane = self._lanes.setdefault(delivery.message.raw.ordering_key, Lane())
        lane.waiting.append(delivery)

    def offer(self, delivery: Delivery, first: bool = False) -> None:
        """Queue a delivery to be handed out: the delivery itself, or its lane if the lane is free."""
        lane = delivery.lane
        if lane is None:
            (self.queue.appendleft if first else self.queue.append)(delivery)
        elif not lane.offered and lane.free(asyncio.get_running_loop().time()):
            lane.offered = True
            self.queue.append(lane)

    def take(self, messages: int, size: int) -> list[Delivery]:
        """Hand out as many as fit into both limits, and at least one if there is any."""
        taken: list[Delivery] = []
        while self.queue and messages > 0 and size > 0:
            entry = self.queue.popleft()
            if isinstance(entry, Run):
                chosen = entry.hand_out(messages, size)
                if entry:
                    self.queue.appendleft(entry)
            elif isinstance(entry, Lane):
                entry.offered = False
                chosen = entry.hand_out(messages, size)
            else:
                chosen = [] if entry.acked else [entry]  # acked late, while it waited to be delivered again
            for delivery in chosen:
                messages -= 1
                size -= delivery.size
            taken += chosen
        return taken

    def settled(self, delivery: Delivery) -> None:
        """Call it after an ack: it offers the next message of the ordering key."""
        if lane := delivery.lane:
            lane.settle()
            self._go_on(lane, delivery)

    def remove(self, delivery: Delivery) -> None:
        """Drop a delivery without an ack; it is not handed out again."""
        if lane := delivery.lane:
            if delivery in lane.waiting:
                lane.waiting.remove(delivery)
            else:
                lane.settle()
            self._go_on(lane, delivery)

    def _go_on(self, lane: Lane, delivery: Delivery) -> None:
        if lane.waiting:
            self.offer(lane.waiting[0])
        elif not lane.held:
            self._lanes.pop(delivery.message.raw.ordering_key, None)

"""Receives messages from the bus: by streaming pull until it is stopped, or by draining until every subscription is empty.

Both extend the lease of a message while it is handled, and acknowledge in bulk. Push is a third way: an HTTP endpoint of a
service that calls `Consumer.handle` itself. The receiver pulls nothing from a subscription that the bus pushes, until it is
changed back to pull.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

from structlog import get_logger

from messaging.backoff import wait
from messaging.bus import Message, MessageSource, by_subscription
from messaging.consumer import Handle, Verdict
from messaging.errors import BusUnavailable, SubscriptionPushed
from messaging.progress import Outage, step

log = get_logger()

PUSHED_SECONDS = 1.0  # between two looks at whether a pushed subscription can be pulled again
STREAM_SECONDS = 5.0  # longer than a connection to the bus may take


class FairQueue(asyncio.Queue[Message]):
    """Gives out the messages of each subscription in turn, so that a burst on one does not hold up another."""

    _queue: dict[str, deque[Message]]  # the subscription whose turn it is comes first

    def _init(self, maxsize: int) -> None:
        self._queue = {}

    def _put(self, message: Message) -> None:
        self._queue.setdefault(message.subscription, deque()).append(message)

    def _get(self) -> Message:
        subscription = next(iter(self._queue))
        messages = self._queue.pop(subscription)
        message = messages.popleft()
        if messages:
            self._queue[subscription] = messages
        return message

    def qsize(self) -> int:
        return sum(map(len, self._queue.values()))


class Receiver:
    """Options, with unit and default:

    batch_size     messages handled in one transaction (250)
    workers        batches handled at the same time, each on its own connection (2)
    outstanding    messages that may be unacknowledged, per subscription (1,000)
    ack_deadline   seconds of a lease, extended every third of it; also how long a killed consumer's messages wait (10)
    drain_wait     seconds without a message after which a drain treats a subscription as empty (5)
    stop_limit     seconds to finish received messages after a stop; the rest is nacked (8)
    """

    def __init__(
        self,
        bus: MessageSource,
        subscriptions: Sequence[str],
        handle: Handle,
        *,
        batch_size: int = 250,
        workers: int = 2,
        outstanding: int = 1000,
        ack_deadline: int = 10,
        drain_wait: float = 5.0,
        stop_limit: float = 8.0,
    ) -> None:
        self._bus, self._subscriptions, self._handle = bus, subscriptions, handle
        self._batch_size, self._workers, self._outstanding = batch_size, workers, outstanding
        self._ack_deadline, self._drain_wait, self._stop_limit = ack_deadline, drain_wait, stop_limit
        self._waiting = FairQueue()
        self._leased = dict[str, Message]()
        self._answering = Outage("acknowledging")

    @property
    def waiting(self) -> int:
        """Messages that are received and not taken into a batch yet."""
        return self._waiting.qsize()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`. Then half-close the streams, handle the received messages, and nack the rest."""
        readers = [asyncio.create_task(self._read(name, stop), name=f"read {name}") for name in self._subscriptions]
        workers = [asyncio.create_task(self._work(), name=f"worker {n}") for n in range(self._workers)]
        leases = asyncio.create_task(self._extend_leases(), name="leases")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        tasks = [*readers, *workers, leases]
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        try:
            for task in done:
                task.result()  # a task that ends before the stop has a bug: fail, so that the process is restarted
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._stop_limit):
                    await asyncio.gather(*readers)
                    await self._waiting.join()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._nack_the_rest()

    async def drain(self) -> int:
        """Pull until every subscription is empty or pushed, for scheduled jobs. Return the number of messages handled."""
        leases = asyncio.create_task(self._extend_leases(), name="leases")
        try:
            return sum(await asyncio.gather(*map(self._drain, self._subscriptions)))
        finally:
            leases.cancel()
            await asyncio.gather(leases, return_exceptions=True)

    async def _drain(self, subscription: str) -> int:
        handled = 0
        while batch := await self._pull(subscription):
            self._lease(batch)
            await self._handle_and_acknowledge(batch)
            handled += len(batch)
        return handled

    async def _pull(self, subscription: str) -> list[Message]:
        try:
            return await self._bus.pull(subscription, self._batch_size, wait=self._drain_wait)
        except SubscriptionPushed:
            log.info("subscription is pushed, nothing to pull", subscription=subscription)
            return []

    async def _read(self, subscription: str, stop: asyncio.Event) -> None:
        outage = Outage(f"subscription {subscription}", cap=1.0)  # a try costs the bus little, and messages wait
        told = False
        while not stop.is_set():
            try:
                await self._read_stream(subscription, stop, outage)
            except SubscriptionPushed:  # no outage: an operator has changed the topology
                outage.over()
                if not told:
                    log.info("subscription is pushed, nothing to pull", subscription=subscription)
                told = True
                await wait(stop, PUSHED_SECONDS)
            except BusUnavailable as error:
                await wait(stop, outage.failed(str(error)[:300]))

    async def _read_stream(self, subscription: str, stop: asyncio.Event, outage: Outage) -> None:
        """The outage is over with the first message, or once the stream has been open for `STREAM_SECONDS`."""
        stream = self._bus.stream(
            subscription, outstanding=self._outstanding, ack_deadline=self._ack_deadline, stop=stop
        )
        open_for_long = asyncio.get_running_loop().call_later(STREAM_SECONDS, outage.over)
        try:
            async for messages in stream:
                outage.over()
                self._lease(messages)
                for message in messages:
                    self._waiting.put_nowait(message)
        finally:
            open_for_long.cancel()

    async def _work(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < self._batch_size and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            try:
                with step("handling a batch of messages"):
                    await self._handle_and_acknowledge(batch)
            finally:
                for _ in batch:
                    self._waiting.task_done()

    async def _handle_and_acknowledge(self, batch: Sequence[Message]) -> None:
        verdicts = await self._handle(batch)
        for message in batch:
            self._leased.pop(message.ack_id, None)
        acks = [message for message, verdict in zip(batch, verdicts, strict=True) if verdict is Verdict.ACK]
        nacks = [message for message, verdict in zip(batch, verdicts, strict=True) if verdict is Verdict.NACK]
        try:
            for subscription, ack_ids in by_subscription(acks).items():
                await self._bus.acknowledge(subscription, ack_ids)
            for subscription, ack_ids in by_subscription(nacks).items():
                await self._bus.modify_deadline(subscription, ack_ids, 0)
            self._answering.over()
        except BusUnavailable as error:  # the bus delivers them again, and the claims deduplicate them
            self._answering.failed(str(error)[:300])

    def _lease(self, messages: Sequence[Message]) -> None:
        self._leased.update({message.ack_id: message for message in messages})

    async def _extend_leases(self) -> None:
        while True:
            await asyncio.sleep(self._ack_deadline / 3)
            for subscription, ack_ids in by_subscription(self._leased.values()).items():
                try:
                    await self._bus.modify_deadline(subscription, ack_ids, self._ack_deadline)
                    self._answering.over()
                except BusUnavailable as error:  # the bus delivers them again
                    self._answering.failed(str(error)[:300])

    async def _nack_the_rest(self) -> None:
        for subscription, ack_ids in by_subscription(self._leased.values()).items():
            with contextlib.suppress(BusUnavailable):
                await self._bus.modify_deadline(subscription, ack_ids, 0)
        self._leased.clear()

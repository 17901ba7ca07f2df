"""`fern quest risks`: how many events a design loses or repeats in a month, from the uptime of its parts and our relay's window.

The window is the time from the moment when the bus has an event to the commit of its mark as published. It is measured: our
relay, a PostgreSQL that syncs to disk and our Pub/Sub emulator, one event at a time. The rest is arithmetic on
assumptions that are options, and printed with the result.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from unittest.mock import patch

import click

from e2e.experiments.bench.environment import new_environment
from e2e.support.bus import apply_topology
from e2e.support.sample_events import TOPICS, Happened, emit
from fern.output import json_option, make_console, print_json, print_table
from messaging.bus import Outgoing
from messaging.database import create_engine
from messaging.pubsub import PubSub
from messaging.relay import Relay
from messaging.unit_of_work import UnitOfWork
from servicekit.logs import configure

EVENTS = 50
MINUTES_A_MONTH = 365.25 / 12 * 24 * 60


class TimedBus:
    """The bus, and when it last accepted messages."""

    def __init__(self, bus: PubSub) -> None:
        self._bus, self.accepted_at = bus, 0.0

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        message_ids = await self._bus.publish(topic, messages)
        self.accepted_at = time.perf_counter()
        return message_ids


async def measure_window(url: str, events: int) -> float:
    """The window in seconds: the median over `events` events."""
    await apply_topology("risks", TOPICS)
    engine, bus = create_engine(url, process="risks"), PubSub("risks")
    timed, windows = TimedBus(bus), list[float]()
    relay = Relay(engine, timed)
    for number in range(events):
        await emit(lambda: UnitOfWork(engine, source="risks", committed=lambda: None), Happened("a", number))
        await relay.run_once()  # returns after the commit
        windows.append(time.perf_counter() - timed.accepted_at)
    await bus.close()
    await engine.dispose()
    return statistics.median(windows)


@dataclass(frozen=True, slots=True)
class Risks:
    """What designs lose or repeat in one month.

    `uptime` is of the database and of the bus, in percent; `interruptions` are those of the relay or its database.
    """

    window: float
    uptime: float
    events_a_minute: float
    interruptions: float

    @property
    def minutes_down(self) -> float:
        return MINUTES_A_MONTH * (1 - self.uptime / 100)

    @property
    def lost(self) -> float:
        """Events that a dual write loses: each one while the bus is down. The changes are committed without their events."""
        return self.events_a_minute * self.minutes_down

    @property
    def repeated(self) -> float:
        """Events that an outbox publishes twice: an interruption repeats those that are in the window at that moment."""
        return self.interruptions * self.events_a_minute / 60 * self.window


def show(risks: Risks) -> None:
    print_table(
        "design | events lost a month | events published twice a month | effects repeated",
        [
            ("dual write", f"{risks.lost:,.0f}", "0", "every repeat of a request"),
            ("outbox, naive consumer", "0", f"{risks.repeated:.4g}", "all of them, and all that the bus repeats"),
            ("outbox and claims (ours)", "0", f"{risks.repeated:.4g}", "0"),
        ],
    )
    assumed = f"{risks.uptime:g} % uptime is {risks.minutes_down:.1f} minutes down in a month"
    load = f"{risks.events_a_minute:g} events a minute, {risks.interruptions:g} interruptions a month"
    years = 1 / risks.repeated / 12 if risks.repeated else float("inf")
    make_console().print(
        f"\n{assumed}; {load}. From publish to the committed mark: {risks.window * 1000:.1f} ms (median, measured),"
        f"\nso the relay publishes an event twice once in {years:,.0f} years. The bus repeats far more often than that."
    )


@click.command("risks")
@click.option(
    "--uptime",
    type=click.FloatRange(0, 100),
    default=99.95,
    show_default=True,
    help="Uptime of database and bus, in %.",
)
@click.option("--rate", type=click.FloatRange(0), default=10.0, show_default=True, help="Events a minute.")
@click.option(
    "--interruptions",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Interruptions of the relay, a month.",
)
@click.option(
    "--events", type=click.IntRange(1, 10_000), default=EVENTS, show_default=True, help="Events to measure with."
)
@json_option
def main(uptime: float, rate: float, interruptions: float, events: int, as_json: bool) -> None:
    """Compare what designs lose or repeat in a month, with the window of our relay measured on this machine."""
    configure("quest", "CRITICAL")
    with new_environment() as environment, patch.dict(os.environ, PUBSUB_EMULATOR_HOST=environment.bus.target):
        window = asyncio.run(measure_window(environment.server.url("labour", "labour"), events))
    risks = Risks(window, uptime, rate, interruptions)
    if as_json:
        print_json(asdict(risks) | {"minutes_down": risks.minutes_down, "lost": risks.lost, "repeated": risks.repeated})
    else:
        show(risks)

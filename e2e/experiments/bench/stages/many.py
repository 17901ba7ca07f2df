"""1, 2 and 4 relays, 1, 2 and 4 consumers, and 1 and 2 API processes against one database. Relays must keep the order of every
key.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from uuid import UUID

from e2e.experiments.bench.environment import SUBSCRIPTION, TOPIC, Environment, WorkMissing
from e2e.experiments.bench.ours.consumer import complete
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage, rotated
from e2e.experiments.bench.stages.api import CONNECTIONS, PLANNED, prepared
from e2e.experiments.bench.stages.consumer import PEOPLE, with_rosters
from e2e.support.bus import pull_all
from e2e.support.ports import free_port_base
from e2e.support.waiting import until
from fern.settings import PROJECT_ID
from messaging.bus import Message, Outgoing
from messaging.pubsub import PubSub
from messaging.relay import CHANNEL

EVENTS, HANDLED, REQUESTS = 20_000, 6_000, 1600
REPLICAS = {"relays": (1, 2, 4), "consumers": (1, 2, 4), "API processes": (1, 2)}
LOADS = 2  # load generators, so that one of them is not the limit
CONNECTED = "SELECT count(DISTINCT client_port) FROM pg_stat_activity WHERE datname = $1 AND application_name = $2"
SETTLE = 1.0  # seconds until processes with a connection are ready


def out_of_order(messages: list[Message]) -> int:
    """How many messages were published after a later one of the same key."""
    last, wrong = dict[str, str](), 0
    for message in messages:
        key, sequence = message.attributes["ce-subject"], message.attributes["ce-sequence"]
        wrong += sequence < last.get(key, "")
        last[key] = max(sequence, last.get(key, ""))
    return wrong


def run_replicas(environment: Environment, replicas: int, service: str, role: str, url: str) -> None:
    """Start the processes, and wait until all of them are connected to the database."""
    for _ in range(replicas):
        environment.worker(service, role, **{f"{service.upper()}_DATABASE_URL": url})
    database, name = url.rpartition("/")[2], f"{service}-{role}"
    until(
        lambda: int(environment.sql(environment.server.dsn(), CONNECTED, database, name)[0][0]),
        lambda connections: connections >= replicas,
        what=f"{replicas} {name} are connected",
    )
    time.sleep(SETTLE)


def relays(environment: Environment, replicas: int, count: int) -> Measured:
    url = environment.copy(environment.server.url("labour", "labour"), "labour")
    fill = environment.child("ours.outbox")
    run_replicas(environment, replicas, "labour", "relay", url)
    fill.ask(url=url, count=count, chunk=count)  # one commit, so that all of it is there at once
    started = time.perf_counter()
    environment.sql(url, f"NOTIFY {CHANNEL}")
    until(environment.waiting, lambda waiting: waiting >= count, what="every event is on the bus")
    seconds = time.perf_counter() - started
    messages = asyncio.run(_pull(SUBSCRIPTION))
    if len(messages) < count or out_of_order(messages):
        raise WorkMissing(f"many: {len(messages)} of {count} messages, {out_of_order(messages)} out of order.")
    return Measured(count / seconds)


async def _pull(subscription: str) -> list[Message]:
    bus = PubSub(PROJECT_ID)
    try:
        return await pull_all(bus, subscription)
    finally:
        await bus.close()


def consumers(environment: Environment, replicas: int, template: str, labours: list[str]) -> Measured:
    url = environment.copy(template, "notification")
    run_replicas(environment, replicas, "notification", "consumer", url)
    events = [complete(UUID(labour)) for labour in labours]
    started = time.perf_counter()
    asyncio.run(_publish(events))
    handled = f"notification.{TOPIC}"
    until(lambda: environment.waiting(handled), lambda waiting: waiting == 0, what="every event is acknowledged")
    seconds = time.perf_counter() - started
    [[written]] = environment.sql(url, "SELECT count(*) FROM notification")
    if written != PEOPLE * len(labours):
        raise WorkMissing(f"many: {written} notifications of {len(labours)} events.")
    environment.purge()
    return Measured(len(labours) / seconds)


def apis(environment: Environment, replicas: int, count: int) -> Measured:
    url, port = environment.copy(environment.server.url("labour", "labour"), "labour"), free_port_base()
    environment.sql(url, PLANNED.format(count=count))
    for number in range(replicas):
        ready = f"http://127.0.0.1:{port + number}/health/ready"
        variables = {"LABOUR_DATABASE_URL": url, "LABOUR_API_PORT": str(port + number)}
        environment.process("-m", "labour", "api", ready=ready, **variables)
    requests = list(prepared(environment, url, "labour", "/api/v1/labours/{}/complete"))
    loads = [environment.child("http_load") for _ in range(LOADS)]
    for number, load in enumerate(loads):
        part = requests[number::LOADS]
        load.tell(port=port + number % replicas, requests=part, connections=CONNECTIONS // LOADS)
    answers = [load.answer() for load in loads]
    if sum(answer["statuses"].get("200", 0) for answer in answers) != count:
        raise WorkMissing(f"many: of {count} completions, the answers were {[one['statuses'] for one in answers]}.")
    return Measured(count / max(answer["seconds"] for answer in answers))


async def _publish(messages: list[Message]) -> None:
    bus = PubSub(PROJECT_ID)
    await bus.publish(TOPIC, [Outgoing(message.data, message.attributes) for message in messages])
    await bus.close()


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    events, handled = options.sized(EVENTS, least=1000), options.sized(HANDLED, least=200)
    requests = options.sized(REQUESTS)
    environment.count_published()
    template, labours = with_rosters(environment, handled)

    def measure(number: int) -> dict[str, Measured]:
        results = dict[str, Measured]()
        for replicas in rotated(REPLICAS["relays"], number):
            with ExitStack() as stack:  # ends the processes
                results[f"relays-{replicas}"] = relays(replace(environment, stack=stack), replicas, events)
        environment.declare()
        environment.purge()
        for replicas in rotated(REPLICAS["consumers"], number):
            with ExitStack() as stack:
                local = replace(environment, stack=stack)
                results[f"consumers-{replicas}"] = consumers(local, replicas, template, labours)
        for replicas in rotated(REPLICAS["API processes"], number):
            with ExitStack() as stack:
                results[f"API processes-{replicas}"] = apis(replace(environment, stack=stack), replicas, requests)
        return results

    yield measure


def case(kind: str, replicas: int) -> Case:
    unit = "requests/s" if kind == "API processes" else "events/s"
    title = f"{replicas} {kind}" if replicas > 1 else f"1 {kind.removesuffix('es' if kind.endswith('ses') else 's')}"
    return Case(title, unit, against=f"{kind}-1" if replicas > 1 else "")


STAGE = Stage(
    "many",
    "several relays, consumers and API processes against one database",
    {f"{kind}-{replicas}": case(kind, replicas) for kind, counts in REPLICAS.items() for replicas in counts},
    start,
    rounds=3,
    warm_up=False,
)

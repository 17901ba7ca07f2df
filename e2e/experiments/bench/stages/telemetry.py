"""What telemetry costs our side of each stage: off, and on as outside of local runs, where a tenth of the traces is sampled.

Off, events have no trace context. On, a tenth of them has one, the metrics have both readers (`/metrics` and OTLP), as in a
deployed process, and everything is sent to a collector that costs next to nothing. A log line is measured alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from e2e.experiments.bench.contexts import SAMPLED
from e2e.experiments.bench.environment import Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage, rotated
from e2e.experiments.bench.stages import api, consumer, relay, sms
from e2e.support.ports import free_port_base
from fern.settings import PROJECT_ID

REQUESTS, EVENTS, HANDLED, MESSAGES = 1600, 48_000, 12_000, 3200  # more than the stages have: the difference is small
LINES = 50_000
SEND_MILLISECONDS = 500  # between two exports of spans, as in a local system
GOAL = 0.95  # of the throughput without telemetry
LINE_GOAL = 20.0  # µs

Side = Callable[[], Measured]


def start_collector(environment: Environment) -> str:
    """Start a collector, and return its URL."""
    url = f"http://127.0.0.1:{(port := free_port_base())}"
    environment.process("-m", "e2e.experiments.bench.collector", str(port), ready=url)
    return url


def apis(environment: Environment, options: Options, port: int, **variables: str) -> Side:
    count = options.sized(REQUESTS, least=200)  # or none of them might be sampled
    url = environment.copy(environment.server.url("labour", "labour"), "labour")
    environment.sql(url, api.PLANNED.format(count=count * (options.rounds + 1)))
    environment.vacuum(url)
    target, load = api.serve_ours(environment, url, port, **variables), environment.child("http_load")
    return lambda: api.complete(load, target, count, settle=2 * SEND_MILLISECONDS / 1000)


def relays(environment: Environment, options: Options, *, traced: bool, **variables: str) -> Side:
    count = options.sized(EVENTS, least=200)
    template = relay.filled_outbox(environment, count, traced=traced)
    program = environment.child("ours.relay", **variables)
    return lambda: relay.drain(environment, "ours", template, count, program.ask)


def consumers(environment: Environment, options: Options, *, traced: bool, **variables: str) -> Side:
    count = options.sized(HANDLED, least=100)
    template, labours = consumer.with_rosters(environment, count)
    program = environment.child("ours.consumer", **variables)
    return lambda: consumer.handle(
        environment,
        "ours",
        template,
        count,
        lambda url: program.ask(url=url, project=PROJECT_ID, labours=labours, traced=traced),
    )


def dispatchers(environment: Environment, options: Options, stand_in: str, *, traced: bool, **variables: str) -> Side:
    count = options.sized(MESSAGES, least=60) // consumer.PEOPLE * consumer.PEOPLE
    template = sms.with_messages(environment, count, traced=traced)
    program = environment.child("ours.sms", **variables)
    return lambda: sms.send(
        environment,
        "ours",
        stand_in,
        template,
        count,
        lambda url: program.ask(url=url, base_url=stand_in, count=count),
    )


def logs(environment: Environment, options: Options) -> Side:
    program = environment.child("ours.log")

    def write() -> Measured:
        result = program.ask(count=options.sized(LINES))
        return Measured(1e6 * result["seconds"] / result["count"], 1e6 * result["cpu"] / result["count"])

    return write


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    stand_in, port = sms.start_stand_in(environment), free_port_base()
    collectors = {f"{process}-on": start_collector(environment) for process in ("api", "relay", "consumer", "sms")}
    environment.count_published()

    def on(process: str) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collectors[f"{process}-on"],
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(SAMPLED),
            "OTEL_BSP_SCHEDULE_DELAY": str(SEND_MILLISECONDS),
            "MONITOR_PORT": "0",
            "OTEL_METRICS_EXPORTER": "none",
        }

    sides = {
        "api-off": apis(environment, options, port),
        "api-on": apis(environment, options, port + 1, **on("api")),
        "relay-off": relays(environment, options, traced=False),
        "relay-on": relays(environment, options, traced=True, **on("relay")),
        "consumer-off": consumers(environment, options, traced=False),
        "consumer-on": consumers(environment, options, traced=True, **on("consumer")),
        "sms-off": dispatchers(environment, options, stand_in, traced=False),
        "sms-on": dispatchers(environment, options, stand_in, traced=True, **on("sms")),
        "log": logs(environment, options),
    }

    def measure(name: str) -> Measured:
        measured = sides[name]()
        if name in collectors and not httpx.get(collectors[name]).json()["received"]:
            raise WorkMissing(f"telemetry, {name}: the collector was sent nothing.")
        return measured

    yield lambda number: {name: measure(name) for name in rotated(list(sides), number)}


def cases(process: str, unit: str) -> dict[str, Case]:
    return {
        f"{process}-off": Case(f"{process}, off", unit),
        f"{process}-on": Case(f"{process}, on", unit, against=f"{process}-off", goal=GOAL),
    }


STAGE = Stage(
    "telemetry",
    "telemetry off, and on with a tenth of the traces sampled",
    {
        **cases("api", "requests/s"),
        **cases("relay", "events/s"),
        **cases("consumer", "events/s"),
        **cases("sms", "messages/s"),
        "log": Case("log, a line at INFO", "µs", goal=LINE_GOAL, lower=True),
    },
    start,
)

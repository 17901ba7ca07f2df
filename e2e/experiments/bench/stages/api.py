"""`PUT …/complete`: one server process of each design, 16 connections, every labour completed once."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psutil

from e2e.experiments.bench.environment import Child, Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage, rotated
from e2e.experiments.bench.tables import create_articles_tables, create_limits_tables
from e2e.support.ports import free_port_base
from fern.tokens import make_token

REQUESTS, CONNECTIONS = 800, 16

PLANNED = """
    WITH planned AS (
        INSERT INTO labour (id, mother_id, mother_name, first_labour, phase, planned_at, begun_at, roster_version, version)
        SELECT gen_random_uuid(), 'mother-' || n, 'Ada', true, 'early', now(), now(), 2, 3
        FROM generate_series(1, {count}) n RETURNING id)
    INSERT INTO subscriber (id, labour_id, name, phone, state, role, channel, subscribed_at)
    SELECT gen_random_uuid(), id, name, phone, 'approved', 'family-and-friends', 'sms', now()
    FROM planned, (VALUES ('Grace', '+12025550101'), ('Edsger', '+12025550102')) AS person (name, phone)
"""
_ARTICLES = """
    INSERT INTO labours (id, mother_id, mother_name, first_labour, phase, begun_at)
    SELECT gen_random_uuid(), 'mother-' || n, 'Ada', true, 'early', now() FROM generate_series(1, {count}) n
"""
_LIMITS = """
    WITH planned AS (
        INSERT INTO labour (id, mother_id, mother_name, phase, roster_version, version)
        SELECT gen_random_uuid(), 'mother-' || n, 'Ada', 'early', 2, 3 FROM generate_series(1, {count}) n RETURNING id)
    INSERT INTO subscriber
    SELECT gen_random_uuid(), id, name, phone, 'approved'
    FROM planned, (VALUES ('Grace', '+12025550101'), ('Edsger', '+12025550102')) AS person (name, phone)
"""


Server = tuple[int, psutil.Process]  # with its port


class Target:
    """A running design with its prepared requests."""

    def __init__(self, environment: Environment, url: str, table: str, server: Server, path: str) -> None:
        self.port, self.process = server
        self._requests = prepared(environment, url, table, path)

    def next(self, count: int) -> list[tuple[str, dict[str, str]]]:
        return [next(self._requests) for _ in range(count)]


def prepared(environment: Environment, url: str, table: str, path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """One completion of every labour, each with a token of its mother and a key of its own."""
    rows = environment.sql(url, f"SELECT id, mother_id FROM {table} ORDER BY id")
    return ((path.format(row["id"]), _headers(row["mother_id"])) for row in rows)


def _headers(mother: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {make_token(mother)}", "Idempotency-Key": f'"{uuid4()}"'}


def serve_ours(environment: Environment, url: str, port: int, profile: str = "", **variables: str) -> Target:
    """Our API on this database; with `profile` under the sampler, which SIGUSR1 starts."""
    profiled = ("-m", "e2e.experiments.bench.sampler", profile) if profile else ("-m",)
    variables |= {"LABOUR_DATABASE_URL": url, "LABOUR_API_PORT": str(port)}
    ready = f"http://127.0.0.1:{port}/health/ready"
    process = environment.process(*profiled, "labour", "api", ready=ready, **variables)
    return Target(environment, url, "labour", (port, psutil.Process(process.pid)), "/api/v1/labours/{}/complete")


def complete(load: Child, target: Target, count: int, settle: float = 0.0) -> Measured:
    """Complete `count` labours. The CPU time is that of the server until `settle` seconds after the last answer."""
    before = sum(target.process.cpu_times()[:2])
    result = load.ask(port=target.port, requests=target.next(count), connections=CONNECTIONS)
    if result["statuses"] != {"200": count}:
        raise WorkMissing(f"of {count} completions, the answers were {result['statuses']}.")
    time.sleep(settle)
    return Measured.rate({**result, "cpu": sum(target.process.cpu_times()[:2]) - before})


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    count = options.sized(REQUESTS)
    labours, port = count * (options.rounds + 1), free_port_base()
    ours = environment.copy(environment.server.url("labour", "labour"), "labour")
    articles, guarded, unguarded = (environment.new_database(name) for name in ("articles", "guarded", "unguarded"))
    create_articles_tables(articles)
    for url in (guarded, unguarded):
        create_limits_tables(environment, url)
    for url, fill in ((ours, PLANNED), (articles, _ARTICLES), (guarded, _LIMITS), (unguarded, _LIMITS)):
        environment.sql(url, fill.format(count=labours))
        environment.vacuum(url)

    def serve(module: str, number: int, url: str) -> Server:
        command = ("-m", f"e2e.experiments.bench.{module}", str(port + number), url)
        process = environment.process(*command, ready=f"http://127.0.0.1:{port + number}/ready")
        return port + number, psutil.Process(process.pid)

    handler = serve("articles.handler", 1, articles)
    with_guards, without = serve("limits.handler", 2, guarded), serve("limits.handler", 3, unguarded)
    targets = {
        "articles": Target(environment, articles, "labours", handler, "/labours/{}/complete"),
        "ours": serve_ours(environment, ours, port, options.profile),
        "guarded": Target(environment, guarded, "labour", with_guards, "/guarded/{}/complete"),
        "unguarded": Target(environment, unguarded, "labour", without, "/unguarded/{}/complete"),
    }
    load = environment.child("http_load")

    def measure(name: str, number: int) -> Measured:
        if options.profile and name == "ours" and number:
            targets[name].process.send_signal(
                signal.SIGUSR1
            )  # the sampler starts now, when everything is imported and warm
        return complete(load, targets[name], count)

    yield lambda number: {name: measure(name, number) for name in rotated(list(targets), number)}


STAGE = Stage(
    "api",
    "`PUT …/complete`, one worker process",
    {
        "articles": Case("articles: ORM, no guards", "requests/s"),
        "ours": Case("ours, all guards on", "requests/s", against="articles", goal=1.5),
        "guarded": Case("limit: the guards in two statements on asyncpg", "requests/s", against="articles"),
        "unguarded": Case("limit: no guards, one statement on asyncpg", "requests/s", against="articles"),
    },
    start,
    profiled=True,
)

"""`PUT …/complete`: one server process of each design, 16 connections, every labour completed once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from e2e.experiments.bench.environment import Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Options, Round, Stage, rotated
from e2e.experiments.bench.tables import create_articles_tables, create_limits_tables
from e2e.support.ports import free_port_base
from fern.tokens import make_token

REQUESTS, CONNECTIONS = 800, 16

_OURS = """
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


class Target:
    """A running design with its prepared requests."""

    def __init__(self, environment: Environment, url: str, table: str, port: int, path: str) -> None:
        rows = environment.sql(url, f"SELECT id, mother_id FROM {table} ORDER BY id")
        self.port = port
        self._requests = iter([(path.format(row["id"]), _headers(row["mother_id"])) for row in rows])

    def next(self, count: int) -> list[tuple[str, dict[str, str]]]:
        return [next(self._requests) for _ in range(count)]


def _headers(mother: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {make_token(mother)}", "Idempotency-Key": f'"{uuid4()}"'}


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    count = options.sized(REQUESTS)
    labours, port = count * (options.rounds + 1), free_port_base()
    ours = environment.copy(environment.server.url("labour", "labour"), "labour")
    articles, guarded, unguarded = (environment.new_database(name) for name in ("articles", "guarded", "unguarded"))
    create_articles_tables(articles)
    for url in (guarded, unguarded):
        create_limits_tables(environment, url)
    for url, fill in ((ours, _OURS), (articles, _ARTICLES), (guarded, _LIMITS), (unguarded, _LIMITS)):
        environment.sql(url, fill.format(count=labours))
        environment.settle(url)

    def server(module: str, number: int, url: str) -> None:
        command = ("-m", f"e2e.experiments.bench.{module}", str(port + number), url)
        environment.process(*command, ready=f"http://127.0.0.1:{port + number}/ready")

    profile = ("-m", "cProfile", "-o", options.profile) if options.profile else ()
    variables = {"LABOUR_DATABASE_URL": ours, "LABOUR_API_PORT": str(port)}
    ready = f"http://127.0.0.1:{port}/health/ready"
    environment.process(*profile, "-m", "labour", "api", ready=ready, **variables)
    server("articles.handler", 1, articles)
    server("limits.handler", 2, guarded)
    server("limits.handler", 3, unguarded)
    targets = {
        "articles": Target(environment, articles, "labours", port + 1, "/labours/{}/complete"),
        "ours": Target(environment, ours, "labour", port, "/api/v1/labours/{}/complete"),
        "guarded": Target(environment, guarded, "labour", port + 2, "/guarded/{}/complete"),
        "unguarded": Target(environment, unguarded, "labour", port + 3, "/unguarded/{}/complete"),
    }
    load = environment.child("http_load")

    def measure(target: Target) -> float:
        result: dict[str, Any] = load.ask(port=target.port, requests=target.next(count), connections=CONNECTIONS)
        if result["statuses"] != {"200": count}:
            raise WorkMissing(f"of {count} completions, the answers were {result['statuses']}.")
        return float(result["count"] / result["seconds"])

    yield lambda number: {name: measure(targets[name]) for name in rotated(list(targets), number)}


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
)

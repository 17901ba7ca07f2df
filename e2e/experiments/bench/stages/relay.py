"""The relay drains a filled outbox. Every run gets a copy of the same database; the bus keeps every message on disk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from e2e.experiments.bench.environment import TOPIC, Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage, rotated
from e2e.experiments.bench.tables import create_articles_tables, create_limits_tables
from fern.settings import PROJECT_ID

EVENTS = 8000

_ARTICLES = """
    INSERT INTO domain_events (id, aggregate_id, type, data, created_at)
    SELECT gen_random_uuid(), CAST(gen_random_uuid() AS text), '{topic}', jsonb_build_object(
        'labour_id', CAST(gen_random_uuid() AS text), 'mother_name', 'Ada', 'completed_at', CAST(now() AS text)), now()
    FROM generate_series(1, {count})
"""
_LIMITS = """
    INSERT INTO event (event_id, topic, ordering_key, attributes, payload, occurred_at)
    SELECT id, '{topic}', CAST(id AS text), jsonb_build_object('ce-specversion', '1.0', 'ce-id', CAST(id AS text),
        'ce-source', 'labour', 'ce-type', '{topic}', 'ce-dataschema', 'urn:fernlabour:labour.completed:1',
        'ce-subject', CAST(id AS text), 'ce-time', CAST(now() AS text), 'content-type', 'application/json'),
        CAST(jsonb_build_object('labour_id', CAST(id AS text), 'roster_version', 2, 'mother_name', 'Ada',
        'completed_at', CAST(now() AS text)) AS text), now()
    FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, {count})) AS new;
    INSERT INTO pending SELECT position FROM event
"""


def filled_outbox(environment: Environment, count: int, *, traced: bool = False) -> str:
    """A labour database with this many events to publish, to be copied. With `traced`, they have trace contexts."""
    url = environment.copy(environment.server.url("labour", "labour"), "labour")
    environment.child("ours.outbox").ask(url=url, count=count, traced=traced)
    environment.vacuum(url)
    return url


def drain(
    environment: Environment, name: str, template: str, count: int, ask: Callable[..., dict[str, Any]]
) -> Measured:
    """Let a design publish all events of a copy of `template`."""
    url = environment.copy(template, "labour" if name == "ours" else name)
    result = ask(url=url, project=PROJECT_ID, count=count)
    if (waiting := environment.waiting()) != count:
        raise WorkMissing(f"relay, {name}: {waiting} of {count} events are on the bus.")
    environment.purge()
    environment.drop(url)
    return Measured.rate(result)


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    count = options.sized(EVENTS, least=200)
    environment.count_published()
    ours = filled_outbox(environment, count)
    articles, limits = environment.new_database("articles"), environment.new_database("limits")
    create_articles_tables(articles)
    create_limits_tables(environment, limits)
    for url, fill in ((articles, _ARTICLES), (limits, _LIMITS)):
        environment.sql(url, fill.format(topic=TOPIC, count=count))
        environment.vacuum(url)
    templates = {"articles": articles, "ours": ours, "narrow": limits, "publish": limits}
    programs = {name: environment.child(f"{name}.relay") for name in ("articles", "ours", "limits")}
    asks: dict[str, Callable[..., dict[str, Any]]] = {
        "articles": programs["articles"].ask,
        "ours": lambda **order: programs["ours"].ask(**order, profile=options.profile),
        "narrow": lambda **order: programs["limits"].ask(**order, only_publish=False),
        "publish": lambda **order: programs["limits"].ask(**order, only_publish=True),
    }

    yield lambda number: {
        name: drain(environment, name, templates[name], count, asks[name]) for name in rotated(list(templates), number)
    }


STAGE = Stage(
    "relay",
    "relay: outbox to bus",
    {
        "articles": Case("articles: 100 ORM rows, futures in threads", "events/s"),
        "ours": Case("ours: ordered, parking and marking", "events/s", against="articles", goal=7),
        "narrow": Case("limit: no order, asyncpg, narrow tables", "events/s", against="articles"),
        "publish": Case("limit: publish alone", "events/s", against="articles"),
    },
    start,
    profiled=True,
)

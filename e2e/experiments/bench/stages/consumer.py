"""The consumer turns events into notifications: claim, roster, two people each. Logs at INFO go to a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from e2e.experiments.bench.environment import Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage, rotated
from e2e.experiments.bench.tables import create_articles_tables, create_limits_tables
from fern.settings import PROJECT_ID

EVENTS, ARTICLES_EVENTS = 4000, 600  # the articles' designs would take half a minute for 4,000
PEOPLE = 2

_MEMBERS = """
    INSERT INTO member SELECT labour_id, gen_random_uuid(), phone
    FROM (SELECT gen_random_uuid() AS labour_id FROM generate_series(1, {count})) AS labour,
        (VALUES ('+12025550101'), ('+12025550102')) AS person (phone)
"""


def with_rosters(environment: Environment, count: int) -> tuple[str, list[str]]:
    """A notification database in which this many labours have two people each, to be copied; and the ids of the labours."""
    url = environment.copy(environment.server.url("notification", "notification"), "notification")
    labours = [str(uuid4()) for _ in range(count)]
    environment.child("ours.consumer").ask(url=url, project=PROJECT_ID, labours=labours, subscribes=True)
    environment.vacuum(url)
    return url, labours


def handle(
    environment: Environment, name: str, template: str, count: int, ask: Callable[[str], dict[str, Any]]
) -> Measured:
    """Let a design handle `count` events on a copy of `template`."""
    url = environment.copy(template, "notification" if name == "ours" else name)
    result = ask(url)
    table = "notifications" if name in ("articles", "ten") else "notification"
    [[written]] = environment.sql(url, f"SELECT count(*) FROM {table}")
    if written != PEOPLE * count:
        raise WorkMissing(f"consumer, {name}: {written} notifications of {count} events.")
    environment.drop(url)
    return Measured.rate(result)


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    count, few = options.sized(EVENTS, least=100), options.sized(ARTICLES_EVENTS, least=20)
    ours, labours = with_rosters(environment, count)
    articles, limits = environment.new_database("articles"), environment.new_database("limits")
    create_articles_tables(articles)
    create_limits_tables(environment, limits)
    environment.sql(limits, _MEMBERS.format(count=count))
    environment.vacuum(limits)
    programs = {name: environment.child(f"{name}.consumer") for name in ("articles", "ours", "limits")}
    runs: dict[str, tuple[str, int, Callable[[str], dict[str, Any]]]] = {
        "articles": (articles, few, lambda url: programs["articles"].ask(url=url, count=few, at_once=1)),
        "ten": (articles, few, lambda url: programs["articles"].ask(url=url, count=few, at_once=10)),
        "ours": (
            ours,
            count,
            lambda url: programs["ours"].ask(url=url, project=PROJECT_ID, labours=labours, profile=options.profile),
        ),
        "set": (limits, count, lambda url: programs["limits"].ask(url=url, count=count)),
    }

    yield lambda number: {name: handle(environment, name, *runs[name]) for name in rotated(list(runs), number)}


STAGE = Stage(
    "consumer",
    "consumer: event to two notifications, logs at INFO",
    {
        "articles": Case("articles: one by one", "events/s"),
        "ten": Case("articles: ten at a time", "events/s", against="articles"),
        "ours": Case("ours: batches", "events/s", against="articles", goal=40),
        "set": Case("limit: one set-based statement", "events/s", against="articles"),
    },
    start,
    profiled=True,
)

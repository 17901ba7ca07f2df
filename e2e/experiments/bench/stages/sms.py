"""Sending, 50 calls in flight, to a stand-in for Twilio that costs next to nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from e2e.experiments.bench.environment import Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage, rotated
from e2e.experiments.bench.stages.consumer import PEOPLE, with_rosters
from e2e.experiments.bench.tables import create_articles_tables
from e2e.support.ports import free_port_base
from fern.settings import PROJECT_ID

MESSAGES = 1600

_ARTICLES = """
    INSERT INTO notifications (id, labour_id, recipient, phone, body, status)
    SELECT gen_random_uuid(), CAST(gen_random_uuid() AS text), 'Grace', '+12025550101',
        'The baby is here! Ada has given birth.', 'CREATED' FROM generate_series(1, {count})
"""


def start_stand_in(environment: Environment) -> str:
    """Start the stand-in for Twilio, and return its URL."""
    port = free_port_base()
    url = f"http://127.0.0.1:{port}"
    environment.process("-m", "e2e.experiments.bench.sms_stand_in", str(port), ready=url)
    return url


def accepted(stand_in: str) -> list[float]:
    """When messages were accepted since the last call."""
    times: list[float] = httpx.get(stand_in).json()["accepted"]
    return times


def with_messages(environment: Environment, count: int, *, traced: bool = False) -> str:
    """A notification database with this many messages that become due later, to be copied. With `traced`, they have trace
    contexts.
    """
    url, labours = with_rosters(environment, count // PEOPLE)
    environment.child("ours.consumer").ask(url=url, project=PROJECT_ID, labours=labours, traced=traced)
    environment.sql(url, "UPDATE notification SET next_attempt_at = now() + interval '1 day'")
    environment.vacuum(url)
    return url


def send(
    environment: Environment, name: str, stand_in: str, template: str, count: int, ask: Callable[[str], dict[str, Any]]
) -> Measured:
    """Let a design send `count` messages of a copy of `template`, which may be empty if it needs no database."""
    url = environment.copy(template, "notification" if name == "ours" else name) if template else ""
    accepted(stand_in)
    result = ask(url)
    if (sent := len(accepted(stand_in))) != count or result["count"] != count:
        raise WorkMissing(f"sms, {name}: the stand-in accepted {sent} of {count} messages.")
    if url:
        environment.drop(url)
    return Measured.rate(result)


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    count = options.sized(MESSAGES, least=60) // PEOPLE * PEOPLE
    stand_in = start_stand_in(environment)
    ours = with_messages(environment, count)
    articles = environment.new_database("articles")
    create_articles_tables(articles)
    environment.sql(articles, _ARTICLES.format(count=count))
    environment.vacuum(articles)
    programs = {
        "articles": environment.child("articles.sender"),
        "ours": environment.child("ours.sms", LOG_LEVEL="INFO"),
        "bare": environment.child("limits.sms"),
    }
    order: dict[str, Any] = {"base_url": stand_in, "count": count}
    runs: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
        "articles": (articles, lambda url: programs["articles"].ask(url=url, **order)),
        "ours": (ours, lambda url: programs["ours"].ask(url=url, **order, profile=options.profile)),
        "bare": ("", lambda _: programs["bare"].ask(**order)),
    }

    def measure(name: str) -> Measured:
        template, ask = runs[name]
        return send(environment, name, stand_in, template, count, ask)

    yield lambda number: {name: measure(name) for name in rotated(list(runs), number)}


STAGE = Stage(
    "sms",
    "SMS, 50 calls in flight",
    {
        "articles": Case("articles: synchronous client in 50 threads", "messages/s"),
        "ours": Case("ours: through the ledger", "messages/s", against="articles", goal=3),
        "bare": Case("limit: bare HTTP client, no ledger", "messages/s", against="articles"),
    },
    start,
    profiled=True,
)

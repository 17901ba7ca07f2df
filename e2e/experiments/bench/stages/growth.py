"""What a request, a relay's pass and a consumer's batch cost with empty tables, with full ones, while an old transaction is held
open, and during vacuum.

The tables are filled with copies of rows that the services have written themselves: published events, claims, idempotency keys,
and a backlog of events that are not published.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from e2e.experiments.bench.environment import Child, Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage
from e2e.experiments.bench.stages.api import PLANNED, prepared
from e2e.experiments.bench.stages.consumer import with_rosters
from e2e.support.ports import free_port_base
from fern.settings import PROJECT_ID

ROWS = {"published": 200_000, "claims": 200_000, "keys": 20_000, "backlog": 10_000}
FULL = {"published": 10_000_000, "claims": 10_000_000, "keys": 1_000_000, "backlog": 100_000}
REQUESTS, EVENTS, PASSES, LABOURS = 60, 3000, 3, 400
AT_ONCE = 500_000  # rows inserted by one statement
VACUUMS = 3

_COLUMNS = """
    SELECT string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position) AS all,
        string_agg(coalesce($2::jsonb ->> column_name, 'first.' || quote_ident(column_name)), ', ' ORDER BY ordinal_position)
            AS values
    FROM information_schema.columns
    WHERE table_name = $1 AND table_schema = 'public' AND is_identity = 'NO' AND is_generated = 'NEVER'
"""


def multiply(environment: Environment, url: str, table: str, count: int, changed: str) -> None:
    """Insert `count` copies of a row. `changed` is JSON: the columns that differ, each with its SQL expression of `n`."""
    [columns] = environment.sql(url, _COLUMNS, table, changed)
    for start in range(0, count, AT_ONCE):
        numbers = f"generate_series({start + 1}, {min(start + AT_ONCE, count)}) AS n"
        copies = f"SELECT {columns['values']} FROM (SELECT * FROM {table} LIMIT 1) AS first, {numbers}"
        environment.sql(url, f"INSERT INTO {table} ({columns['all']}) {copies}")


@dataclass
class Tables:
    """A labour and a notification database with what measures them."""

    labour: str
    notification: str
    port: int
    requests: Iterator[tuple[str, dict[str, str]]]


class Growth:
    def __init__(self, environment: Environment, options: Options) -> None:
        self._environment, self._options = environment, options
        self._requests, self._events = options.sized(REQUESTS, least=10), options.sized(EVENTS, least=1000)
        self._programs: Mapping[str, Child] = {
            name: environment.child(name)
            for name in ("http_load", "ours.outbox", "ours.relay", "ours.consumer", "ours.holder")
        }
        template, self._labours = with_rosters(environment, options.sized(LABOURS, least=20))
        self.empty, self.full = (self._tables(template) for _ in range(2))

    def _tables(self, template: str) -> Tables:
        environment, port = self._environment, free_port_base()
        labour = environment.copy(environment.server.url("labour", "labour"), "labour")
        notification = environment.copy(template, "notification")
        environment.sql(labour, PLANNED.format(count=self._requests * ((3 + VACUUMS) * self._options.rounds + 1)))
        variables = {"LABOUR_DATABASE_URL": labour, "LABOUR_API_PORT": str(port)}
        environment.process("-m", "labour", "api", ready=f"http://127.0.0.1:{port}/health/ready", **variables)
        requests = prepared(environment, labour, "labour", "/api/v1/labours/{}/complete")
        return Tables(labour, notification, port, requests)

    def fill(self, rows: Mapping[str, int]) -> None:
        self.measure(self.full)  # leaves at least one row in every table
        labour, notification, new_id = self.full.labour, self.full.notification, '{"event_id": "uuidv7()"}'
        multiply(self._environment, labour, "outbox", rows["published"], new_id)
        multiply(self._environment, labour, "idempotency_key", rows["keys"], """{"scope": "'mother-of-' || n"}""")
        multiply(self._environment, notification, "processed_event", rows["claims"], new_id)
        self._programs["ours.outbox"].ask(url=labour, count=rows["backlog"])
        self.vacuum()
        # Otherwise the pages that filling left in memory are written during the measurement, and every commit waits for them.
        self._environment.sql(self._environment.server.dsn(), "CHECKPOINT")

    def measure(self, tables: Tables) -> dict[str, float]:
        ask = {name: program.ask for name, program in self._programs.items()}
        requests = [next(tables.requests) for _ in range(self._requests)]
        request = ask["http_load"](port=tables.port, requests=requests, connections=1)
        if request["statuses"] != {"200": len(requests)}:
            raise WorkMissing(f"growth: the answers were {request['statuses']}.")
        ask["ours.outbox"](url=tables.labour, count=self._events)  # keeps the backlog as long as it is
        passes = ask["ours.relay"](url=tables.labour, project=PROJECT_ID, count=self._events, passes=PASSES)
        self._environment.purge()
        batch = ask["ours.consumer"](url=tables.notification, project=PROJECT_ID, labours=self._labours)
        if not passes["count"] or batch["count"] != len(self._labours):
            raise WorkMissing(f"growth: {passes['count']} events published, {batch['count']} handled.")
        per_event = {name: 1e6 * one["seconds"] / one["count"] for name, one in (("pass", passes), ("batch", batch))}
        return {"request": request["p50"] * 1000, **per_event}

    def hold(self) -> None:
        self._programs["ours.holder"].ask(urls=[self.full.labour, self.full.notification])

    def release(self) -> None:
        self._programs["ours.holder"].ask(urls=[])

    def vacuum(self) -> None:
        """Vacuum the full tables as autovacuum does, with its pauses."""
        for url in (self.full.labour, self.full.notification):
            self._environment.vacuum(url, pauses=True)


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    environment.count_published()
    growth = Growth(environment, options)
    growth.measure(growth.empty)
    growth.fill(options.rows or {name: options.sized(count, least=100) for name, count in ROWS.items()})

    def measure(number: int) -> dict[str, Measured]:
        results = {"empty": growth.measure(growth.empty), "full": growth.measure(growth.full)}
        growth.hold()
        results["old"] = growth.measure(growth.full)
        growth.release()
        with ThreadPoolExecutor(1) as background:
            for _ in range(VACUUMS):
                vacuum = background.submit(growth.vacuum)
                results["vacuumed"] = growth.measure(growth.full)  # of the last cycle
                vacuum.result()
        return {
            f"{kind}-{state}": Measured(value) for state, values in results.items() for kind, value in values.items()
        }

    yield measure


KINDS: dict[str, tuple[str, str]] = {
    "request": ("request, p50", "ms"),
    "pass": ("relay's pass", "µs an event"),
    "batch": ("consumer's batch", "µs an event"),
}
STATES = {
    "empty": "empty tables",
    "full": "full tables",
    "old": "full tables, old transaction open",
    "vacuumed": "full tables, during the third vacuum",
}


def case(kind: str, state: str) -> Case:
    title, unit = KINDS[kind]
    compared: dict[str, Any] = {} if state == "empty" else {"against": f"{kind}-empty", "goal": 1.2, "lower": True}
    return Case(f"{title}: {STATES[state]}", unit, **compared)


STAGE = Stage(
    "growth",
    "cost with empty and with full tables",
    {f"{kind}-{state}": case(kind, state) for kind in KINDS for state in STATES},
    start,
    rounds=3,
    warm_up=False,
)

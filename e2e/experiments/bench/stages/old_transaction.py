"""The relay drains an outbox while an old transaction is held open, so that no row version is ever cleaned up."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from e2e.experiments.bench.environment import Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage
from e2e.experiments.bench.stages.relay import filled_outbox
from fern.settings import PROJECT_ID

ROWS, POLLS = 80_000, 15


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    count = options.sized(ROWS, least=2000)
    environment.count_published()
    filled, relay = filled_outbox(environment, count), environment.child("ours.relay")

    def measure(_: int) -> dict[str, Measured]:
        empty = environment.copy(environment.server.url("labour", "labour"), "labour")
        before = relay.ask(url=empty, project=PROJECT_ID, count=0, polls=POLLS)
        url = environment.copy(filled, "labour")
        result = relay.ask(url=url, project=PROJECT_ID, count=count, polls=POLLS, hold=True)
        if (waiting := environment.waiting()) != count:
            raise WorkMissing(f"old-transaction: {waiting} of {count} events are on the bus.")
        environment.purge()
        for one in (empty, url):
            environment.drop(one)
        first, last = (_rate(result["curve"], start * count // 4, (start + 1) * count // 4) for start in (0, 3))
        return {
            "first": Measured(first),
            "last": Measured(last),
            "idle-before": Measured(before["idle"] * 1000),
            "idle-after": Measured(result["idle"] * 1000),
        }

    yield measure


def _rate(curve: Sequence[tuple[float, int]], start: int, end: int) -> float:
    """Events a second between the first time that `start` were published and the first time that `end` were."""
    begin, finish = (next(point for point in curve if point[1] >= goal) for goal in (start, end))
    return (finish[1] - begin[1]) / (finish[0] - begin[0])


STAGE = Stage(
    "old-transaction",
    "relay drains 80,000 rows while an old transaction is held open",
    {
        "first": Case("drain: first quarter", "events/s"),
        "last": Case("drain: last quarter", "events/s", against="first", goal=0.8),
        "idle-before": Case("poll without work: empty outbox", "ms"),
        "idle-after": Case("poll without work: after the drain", "ms", against="idle-before", goal=1.2, lower=True),
    },
    start,
    rounds=3,
    warm_up=False,
)

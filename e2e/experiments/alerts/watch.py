"""Scrapes the metrics of every process of a world, and evaluates the alerts on them, as Prometheus would."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx
import promql_parser as promql

from e2e.experiments.alerts.promql import Samples, evaluate
from e2e.support.metrics import monitor, parse
from e2e.support.world import World
from fern.observability import Alert

STEP = 30.0  # seconds of the rules' clock between two scrapes
PAUSE = 0.1  # seconds between two scrapes, in which the processes go on with their work
SPEED = 60.0  # the factor by which ages are multiplied for the rules
UNITS = {"s": 1, "m": 60, "h": 3600}
APIS = ("labour-api", "notification-api")


def selectors_in(query: str) -> list[promql.VectorSelector]:
    """The series that a query reads."""
    found = list[promql.VectorSelector]()

    def visit(node: object) -> bool:
        if isinstance(node, promql.VectorSelector):
            found.append(node)
        return True

    promql.walk(promql.parse(query), visit)
    return found


def names_in(query: str) -> set[str]:
    """The metrics that a query reads."""
    return {one.name for one in selectors_in(query) if one.name}


class Watch:
    """The rules' clock goes on with each scrape, by `STEP`, and stands still while something is broken or repaired. So a busy
    machine changes nothing but how long it takes.
    """

    def __init__(self, world: World, alerts: Sequence[Alert]) -> None:
        self._world, self._alerts = world, alerts
        self._names = {name for alert in alerts for name in names_in(alert.query)}
        self._samples, self._true_since = Samples(self._names), dict[str, float]()
        self._pool = ThreadPoolExecutor(len(world.services))
        self.now = 0.0  # seconds
        self.changes: dict[str, list[tuple[float, bool]]] = {alert.name: [] for alert in alerts}

    def fires(self, name: str) -> bool:
        return bool(self.changes[name]) and self.changes[name][-1][1]

    def first(self, name: str, *, fires: bool, after: float) -> float | None:
        """When the alert first began to fire, or ended, after a moment; None if it did not."""
        return next((at for at, became in self.changes[name] if at >= after and became is fires), None)

    def scrape(self) -> None:
        time.sleep(PAUSE)
        self.now += STEP
        pairs = zip(self._world.services, self._pool.map(self._text, self._world.services), strict=True)
        self._samples.scraped(self.now, [one for process, text in pairs for one in self._values(process, text)])
        for alert in self._alerts:
            self._evaluate(alert)

    def _text(self, process: str) -> str:
        """The metrics of a process; empty if it does not answer."""
        try:
            if process in APIS:
                return self._world.operators[process.removesuffix("-api")].get("/metrics", timeout=2).text
            return monitor(self._world.settings.heartbeat(process), "/metrics", timeout=2).text
        except (httpx.HTTPError, OSError, ValueError):
            return ""

    def _values(self, process: str, text: str) -> Iterator[tuple[str, dict[str, str], float]]:
        lines = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] in self._names]
        for sample in parse("\n".join(lines) + "\n"):
            is_age = sample.name.endswith("_seconds") and sample.name != "fern_process_started_seconds"
            value = sample.value * SPEED if is_age else sample.value
            yield sample.name, {**sample.labels, "instance": process}, value

    def _evaluate(self, alert: Alert) -> None:
        if evaluate(alert.query, self._samples, self.now):
            since = self._true_since.setdefault(alert.name, self.now)
            fires = self.now - since >= int(alert.duration[:-1]) * UNITS[alert.duration[-1]]
        else:
            self._true_since.pop(alert.name, None)
            fires = False
        if fires != self.fires(alert.name):
            self.changes[alert.name].append((self.now, fires))

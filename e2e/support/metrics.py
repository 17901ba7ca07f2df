"""The metrics of this process and of others, as Prometheus reads them."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from messaging import metrics
from servicekit import metrics_export


def record() -> None:
    """Start the SDK in this process, once."""
    metrics_export.start("tests-here", {}, monitored=True)


def examples(monkeypatch: pytest.MonkeyPatch, histogram: str) -> Callable[[], list[str]]:
    """Lets the test read the traces that measurements of a histogram of `messaging.metrics` are examples of, by their ids.

    The test gets a histogram of its own, because Prometheus' text format has no exemplars.
    """
    reader = InMemoryMetricReader()
    own = MeterProvider([reader], shutdown_on_exit=False).get_meter("tests").create_histogram("tests.examples", "s")
    monkeypatch.setattr(metrics, histogram, own)

    def traces() -> list[str]:
        found = reader.get_metrics_data()
        points = [
            point
            for resource in (found.resource_metrics if found else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
            if isinstance(point, HistogramDataPoint)
        ]
        return [f"{one.trace_id:032x}" for point in points for one in point.exemplars if one.trace_id]

    return traces


def value(name: str, **labels: str) -> float:
    """The value of a series of this process; 0 if there is none."""
    samples = (sample for family in REGISTRY.collect() for sample in family.samples)
    # Prometheus' format gives all series of a metric the same labels: one that a series does not have is empty.
    own = (one.value for one in samples if one.name == name and {k: v for k, v in one.labels.items() if v} == labels)
    return next(own, 0.0)


def parse(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def total(samples: list[Sample], name: str, **labels: str) -> float:
    """The sum of all series of this name that have these labels."""
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def monitor(heartbeat: Path, path: str, *, timeout: float = 60) -> httpx.Response:
    """Ask the listener of a worker, whose port is in its heartbeat file."""
    port = json.loads(heartbeat.read_text())["monitor_port"]
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=timeout, trust_env=False)

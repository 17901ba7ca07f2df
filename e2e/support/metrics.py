"""The metrics of this process and of others, as Prometheus reads them."""

import json
from pathlib import Path

import httpx
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from servicekit import metrics_export


def record() -> None:
    """Start the SDK in this process, once."""
    metrics_export.start("tests-here", {}, monitored=True)


def value(name: str, **labels: str) -> float:
    """The value of a series of this process; 0 if there is none."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def parse(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def total(samples: list[Sample], name: str, **labels: str) -> float:
    """The sum of all series of this name that have these labels."""
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def monitor(heartbeat: Path, path: str, *, timeout: float = 60) -> httpx.Response:
    """Ask the listener of a worker, whose port is in its heartbeat file."""
    port = json.loads(heartbeat.read_text())["monitor_port"]
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=timeout, trust_env=False)

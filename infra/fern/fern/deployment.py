"""Generates files for production: the variables of infra/gcp, the queries of the exporters, and those of `fern.observability`.

The sources are infra/topology.toml, which `fern topology apply` reads as well, and the files of infra/observability.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fern import observability
from fern.observability import ALERTS, BY_HAND, Alert
from fern.settings import CONSUMERS, PROJECT_ROOT, SERVICES
from fern.topology import DAY, Declared

GCP = PROJECT_ROOT / "infra" / "gcp"
EXPORTERS = PROJECT_ROOT / "infra" / "kubernetes" / "production"
UNITS = {"s": 1, "m": 60, "h": 3600}  # of a duration in PromQL


def generated() -> dict[Path, str]:
    """Every generated file with its text."""
    watched = tomllib.loads(ALERTS.read_text())
    texts = {
        GCP / "topology.auto.tfvars.json": _json({"topology": topology(Declared.load())}),
        GCP / "alerts.auto.tfvars.json": _json({"alerts": alerts(watched)}),
    }
    for service in SERVICES:
        texts[EXPORTERS / f"metrics-{service}.yml"] = exporter(service, watched["metrics"])
    return texts | observability.generated()


def topology(declared: Declared) -> dict[str, Any]:
    """Topics and subscriptions as Terraform makes them. Durations are in seconds, as the API writes them: `604800s`."""
    options = declared.options
    return {
        "topics": list(declared.topics),
        "subscriptions": {
            name: {
                "topic": topic,
                "dead_letter_topic": dead,
                "consumer": name.removesuffix(f".{topic}") if dead else None,
                "service": CONSUMERS[name.removesuffix(f".{topic}")] if dead else None,
                "push": bool(dead) and declared.delivery[name].is_pushed,
                "exactly_once": bool(dead) and declared.delivery[name].value == "exactly-once",
                "retention": _seconds(options["retention_days" if dead else "dead_letter_retention_days"] * DAY),
            }
            for name, (topic, dead) in declared.subscriptions.items()
        },
        "ack_deadline_seconds": options["ack_deadline_seconds"],
        "minimum_backoff": _seconds(options["minimum_backoff_seconds"]),
        "maximum_backoff": _seconds(options["maximum_backoff_seconds"]),
        "max_delivery_attempts": options["max_delivery_attempts"],
    }


def alerts(watched: Mapping[str, Any]) -> dict[str, Any]:
    """Every alert by name: those on Google Cloud's metrics, and those on our processes', which a collector sends there."""
    googles = [
        Alert(one["name"], one["query"], one["for"], one["severity"], one["runbook"])
        for one in watched["alerts"]
        if one["needs"] == "google"
    ]
    needed = [("google", googles), ("processes", observability.alerts(watched))]
    return {
        alert.name: {
            "query": alert.query,
            "duration": _seconds(int(alert.duration[:-1]) * UNITS[alert.duration[-1]]),
            "severity": alert.severity,
            "runbook": alert.runbook,
            "needs": needs,
        }
        for needs, alerts in needed
        for alert in alerts
    }


def exporter(service: str, metrics: Mapping[str, Any]) -> str:
    """The configuration of sql_exporter for the database of one service. JSON is YAML."""
    own = {name: metric for name, metric in metrics.items() if service in metric["services"]}
    collected = [
        {"metric_name": name, "type": "gauge", "help": one["help"], "values": ["value"], "query": one["query"].strip()}
        for name, one in own.items()
    ]
    config = {
        "global": {"scrape_timeout": "10s", "min_interval": "5s", "max_connections": 1, "max_idle_connections": 1},
        "target": {"data_source_name": "set by SQLEXPORTER_TARGET_DSN", "collectors": [service]},
        "collectors": [{"collector_name": service, "metrics": collected}],
    }
    return f"# {BY_HAND}\n" + json.dumps(config, indent=2) + "\n"


def _seconds(seconds: float) -> str:
    return f"{seconds:g}s" if seconds < 10**5 else f"{seconds:.0f}s"


def _json(variables: dict[str, Any]) -> str:
    return json.dumps({"//": BY_HAND, **variables}, indent=2) + "\n"

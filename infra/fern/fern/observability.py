"""Alert rules and the dashboard, made from infra/observability/alerts.toml and dashboard.toml.

The same rules are written for Prometheus, for Google's Managed Prometheus on Kubernetes, and for Grafana, which evaluates them by
itself where the configuration of Prometheus is not ours, as in `grafana/otel-lgtm`.
"""

import json
import tomllib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from fern.settings import PROJECT_ROOT

FOLDER = PROJECT_ROOT / "infra" / "observability"
ALERTS, DASHBOARD = FOLDER / "alerts.toml", FOLDER / "dashboard.toml"
RULES = FOLDER / "rules.yml"
GRAFANA = FOLDER / "grafana"
MANAGED_RULES = PROJECT_ROOT / "infra" / "kubernetes" / "production" / "rules.yaml"
BY_HAND = "Written by `fern deployment write`: do not edit."
RUNBOOK = "docs/operations.md"
# For an error budget of 30 days: the burn rate, its two windows, and how long it must last. From Google's SRE workbook.
BURN_RATES = {"fast": (14.4, "1h", "5m", "2m"), "slow": (6.0, "6h", "30m", "15m")}
TITLE, UID, WIDTH = "FernLabour: the pipeline at a glance", "fernlabour-pipeline", 24


class Alert(NamedTuple):
    name: str
    query: str  # PromQL; it has a value above 0 while something is wrong
    duration: str  # how long it has to be true before it fires
    severity: str
    runbook: str  # a heading of docs/operations.md

    @property
    def url(self) -> str:
        return f"{RUNBOOK}#{self.runbook}"


def alerts(watched: Mapping[str, Any] | None = None) -> list[Alert]:
    """The alerts on metrics of our processes, and two for each service level objective."""
    declared = watched or tomllib.loads(ALERTS.read_text())
    own = [
        Alert(one["name"], one["query"], one["for"], one["severity"], one["runbook"])
        for one in declared["alerts"]
        if one["needs"] == "processes"
    ]
    return own + [_burn_rate(slo, speed) for slo in declared["slos"] for speed in BURN_RATES]


def _burn_rate(slo: Mapping[str, Any], speed: str) -> Alert:
    factor, *windows, duration = BURN_RATES[speed]
    share = f"{factor * (1 - slo['objective']):.6g}"
    query = "\nand ".join(f"({_ratio(slo, window)}) > {share}" for window in windows)
    severity = slo["severity"] if speed == "fast" else "warning"
    return Alert(f"SLO {slo['name']}: the budget burns {speed}", query, duration, severity, slo["runbook"])


def _ratio(slo: Mapping[str, Any], window: str) -> str:
    bad, total = (slo[part].replace("$window", window) for part in ("bad", "total"))
    return f"({bad}) / ({total})"


def generated() -> dict[Path, str]:
    """Every generated file with its text. JSON is YAML."""
    watched, shown = tomllib.loads(ALERTS.read_text()), tomllib.loads(DASHBOARD.read_text())
    groups = [{"name": "fernlabour", "interval": "30s", "rules": [_rule(one) for one in alerts(watched)]}]
    managed = {
        "apiVersion": "monitoring.googleapis.com/v1",
        "kind": "Rules",
        "metadata": {"name": "fernlabour"},
        "spec": {"groups": groups},
    }
    return {
        RULES: _yaml({"groups": groups}),
        MANAGED_RULES: _yaml(managed),
        GRAFANA / "alerts.yml": _yaml(_grafana_alerts(watched)),
        GRAFANA / "pipeline.json": json.dumps(dashboard(watched, shown), indent=1) + "\n",
    }


def _rule(alert: Alert) -> dict[str, Any]:
    """The alert as Prometheus reads it."""
    return {
        "alert": alert.name,
        "expr": alert.query,
        "for": alert.duration,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.name, "runbook": alert.url},
    }


def _grafana_alerts(watched: Mapping[str, Any]) -> dict[str, Any]:
    rules = [
        {
            "uid": "fern-" + sha256(alert.name.encode()).hexdigest()[:12],
            "title": alert.name,
            "condition": "wrong",
            "for": alert.duration,
            "noDataState": "OK",  # no result means that nothing is wrong
            "execErrState": "Error",
            "labels": {"severity": alert.severity},
            "annotations": {"runbook": alert.url, "__dashboardUid__": UID, "__panelId__": "1"},
            "data": [
                _query("value", "prometheus", {"expr": alert.query, "instant": True, "refId": "value"}),
                _query("wrong", "__expr__", _above_nought("value")),
            ],
        }
        for alert in alerts(watched)
    ]
    group = {"orgId": 1, "name": "fernlabour", "folder": "FernLabour", "interval": "30s", "rules": rules}
    return {"apiVersion": 1, "groups": [group]}


def _query(name: str, source: str, model: Mapping[str, Any]) -> dict[str, Any]:
    return {"refId": name, "datasourceUid": source, "relativeTimeRange": {"from": 600, "to": 0}, "model": model}


def _above_nought(name: str) -> dict[str, Any]:
    conditions = [{"evaluator": {"type": "gt", "params": [0]}}]
    return {"refId": "wrong", "type": "threshold", "expression": name, "conditions": conditions}


def dashboard(watched: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """The first row has the objectives; then each row of dashboard.toml has a title and its panels side by side."""
    panels = [_alert_list()]
    below = panels[0]["gridPos"]["h"]
    objectives = [
        {"title": f"SLO: {slo['promise']}", "unit": "percentunit", "show": "stat", "queries": {"good": _good(slo)}}
        for slo in watched["slos"]
    ]
    for row in [{"title": "Objectives, over the time that is shown", "panels": objectives}, *shown["rows"]]:
        place = {"h": 1, "w": WIDTH, "x": 0, "y": below}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row["title"], "gridPos": place, "panels": []})
        width, height = WIDTH // len(row["panels"]), 4 if row["panels"] is objectives else 7
        for number, panel in enumerate(row["panels"]):
            place = {"h": height, "w": width, "x": number * width, "y": below + 1}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
        below += 1 + height
    return {
        "uid": UID,
        "title": TITLE,
        "description": BY_HAND,
        "tags": ["fernlabour"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "panels": panels,
    }


def _good(slo: Mapping[str, Any]) -> str:
    """PromQL for the share that was not bad. If `bad` has no series yet and `total` has some, nothing was bad."""
    bad, total = (slo[part].replace("$window", "$__range") for part in ("bad", "total"))
    return f"1 - (({bad}) or 0 * ({total})) / (({total}) > 0)"


def _alert_list() -> dict[str, Any]:
    options = {"alertName": "", "folder": {"title": "FernLabour"}, "stateFilter": {"firing": True, "pending": True}}
    place = {"h": 5, "w": WIDTH, "x": 0, "y": 0}
    return {"id": 1, "type": "alertlist", "title": "Alerts that fire", "gridPos": place, "options": options}


def _panel(panel: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in panel:
        return {"type": "text", "title": panel["title"], "options": {"mode": "markdown", "content": panel["text"]}}
    targets = [
        {"refId": chr(65 + number), "expr": query, "legendFormat": legend, "exemplar": panel.get("exemplars", False)}
        for number, (legend, query) in enumerate(panel["queries"].items())
    ]
    return {
        "type": panel.get("show", "timeseries"),
        "title": panel["title"],
        "description": panel.get("description", ""),
        "datasource": {"type": "prometheus", "uid": "prometheus"},
        "fieldConfig": {"defaults": {"unit": panel.get("unit", "short"), "min": 0}, "overrides": []},
        "targets": targets,
    }


def queries(watched: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, str]:
    """All PromQL of rules and panels, by a name for messages. Grafana's `$__range` and `$__rate_interval` are 5 minutes."""
    found = {f"alert {one.name}": one.query for one in alerts(watched)}
    for panel in dashboard(watched, shown)["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__range", "5m").replace("$__rate_interval", "5m")
            found[f"panel {panel['title']}, {target['legendFormat']}"] = query
    return found


def _yaml(content: Mapping[str, Any]) -> str:
    return f"# {BY_HAND}\n" + json.dumps(content, indent=1) + "\n"

"""The alerts, dashboards and queries of exporters that are generated from infra/observability/alerts.toml."""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]
from sqlalchemy.ext.asyncio import AsyncEngine

from fern import deployment, observability
from fern.settings import PROJECT_ROOT

from .test_deployment import PROCESSES, terraform

WATCHED = tomllib.loads(observability.ALERTS.read_text())


def test_every_alert_leads_to_a_heading_that_says_what_to_do() -> None:
    page = (PROJECT_ROOT / "docs" / "operations.md").read_text()
    headings = {
        re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in re.findall(r"^## (.+)$", page, re.MULTILINE)
    }

    with_alert = {alert["runbook"] for alert in [*WATCHED["alerts"], *WATCHED["slos"]]}
    assert with_alert | WATCHED["without_alert"].keys() == headings
    assert not with_alert & WATCHED["without_alert"].keys()
    for alert in WATCHED["alerts"]:
        assert ("googleapis" in alert["query"]) == (alert["needs"] == "google"), alert["name"]


def test_google_cloud_gets_every_alert_and_the_metrics_that_it_needs() -> None:
    policies = json.loads((deployment.GCP / "alerts.auto.tfvars.json").read_text())["alerts"]
    own = {alert.name for alert in observability.alerts()}
    googles = {alert["name"] for alert in WATCHED["alerts"] if alert["needs"] == "google"}
    run = (deployment.GCP / "run.tf").read_text()

    assert {name for name, policy in policies.items() if policy["needs"] == "processes"} == own
    assert {name for name, policy in policies.items() if policy["needs"] == "google"} == googles
    assert re.findall(r'name += "(process|proxy|collector)"', run) == ["process", "proxy", "collector"] * 2
    assert "monitor_port = 8080" in terraform(), "the collector reads this port by default"


def test_an_alert_looks_for_each_process_that_runs() -> None:
    [missing] = [alert["query"] for alert in WATCHED["alerts"] if alert["name"] == "A process is missing"]

    assert set(re.findall(r'process="([a-z-]+)"', missing)) == PROCESSES.keys()


def test_grafana_gets_the_same_alerts_and_a_panel_for_each_promise() -> None:
    def load(name: str) -> Any:
        return yaml.safe_load((observability.GRAFANA / name).read_text())

    [group] = load("alerts.yml")["groups"]
    rules = {rule["title"]: rule for rule in group["rules"]}
    assert {name: rule["data"][0]["model"]["expr"] for name, rule in rules.items()} == {
        alert.name: alert.query for alert in observability.alerts()
    }
    assert len({rule["uid"] for rule in rules.values()}) == len(rules)
    for rule in rules.values():
        assert rule["condition"] in {step["refId"] for step in rule["data"]}
    panels = load("pipeline.json")["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    promised = {int(number) for panel in panels for number in re.findall(r"\d+", promises(panel["title"]))}
    assert promised == set(range(1, 16))
    assert load("dashboards.yml")["providers"][0]["options"]["path"] == "/otel-lgtm/fernlabour"


def test_the_runbook_names_a_panel_for_each_alert() -> None:
    page = (PROJECT_ROOT / "docs" / "operations.md").read_text().partition("### Alerts and panels")[2]
    rows = re.findall(r"^\| .*: (\".+) \| (.+) \| `fern .+` \|$", page, re.MULTILINE)
    alerts = [name for named, _ in rows for name in re.findall(r'"([^"]+)"', named)]
    shown = tomllib.loads(observability.DASHBOARD.read_text())["rows"]
    titles = {panel["title"].partition(" (")[0] for row in shown for panel in row["panels"]}

    assert sorted(alerts) == sorted({one.name.partition(": the budget")[0] for one in observability.alerts()})
    assert {name for _, panels in rows for name in panels.split("; ")} <= titles


def promises(title: str) -> str:
    """What a title says after "promise", up to the words that follow."""
    found = re.search(r"[Pp]romises? ([\d, and]+)", title)
    return found[1] if found else ""


async def test_every_metric_is_one_number_of_the_real_schema_and_reads_no_whole_table(
    labour_engine: AsyncEngine, notification_engine: AsyncEngine
) -> None:
    metrics: Mapping[str, Any] = WATCHED["metrics"]
    for service, engine in (("labour", labour_engine), ("notification", notification_engine)):
        async with engine.connect() as connection:
            for name, metric in metrics.items():
                if service in metric["services"]:
                    (row,) = (await connection.exec_driver_sql(metric["query"])).mappings()
                    assert dict(row) == {"value": 0.0}, name
                    await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
                    plan = "\n".join((await connection.exec_driver_sql(f"EXPLAIN {metric['query']}")).scalars())
                    assert "Seq Scan" not in plan, name
                    assert "Limit" in plan, name

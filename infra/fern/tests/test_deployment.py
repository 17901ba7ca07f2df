"""What production is made of, compared with what runs here: processes, topology, databases, and the queries of the exporters."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.process_settings import LOAD
from fern import deployment, observability
from fern.settings import PROJECT_ROOT, SECRETS, SERVICES
from fern.topology import Declared, _subscription

COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "docker-compose.yml").read_text())["services"]
PROCESSES = {
    name: service["command"]
    for name, service in COMPOSE.items()
    if service["image"] in ("fernlabour-labour", "fernlabour-notification") and not name.endswith("-migrations")
}
MIGRATIONS = {name: service["command"] for name, service in COMPOSE.items() if name.endswith("-migrations")}
WATCHED = tomllib.loads(observability.ALERTS.read_text())
BASE = PROJECT_ROOT / "infra" / "kubernetes" / "base"


def manifests(*names: str) -> list[dict[str, Any]]:
    return [one for name in names for one in yaml.safe_load_all((BASE / f"{name}.yaml").read_text())]


def commands(documents: list[dict[str, Any]], kind: str) -> dict[str, list[str]]:
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["command"]
        for one in documents
        if one["kind"] == kind
    }


def terraform() -> str:
    return (deployment.GCP / "processes.tf").read_text()


def test_the_generated_files_are_as_the_command_writes_them() -> None:
    outdated = [path.name for path, text in deployment.generated().items() if path.read_text() != text]

    assert outdated == [], "run `fern deployment write`"


def seconds(duration: Any) -> float:
    """The seconds of a duration as Google's client reads it: a timedelta."""
    return float(duration.total_seconds())


def test_terraform_makes_the_subscriptions_that_the_command_makes() -> None:
    declared = Declared.load()
    written = json.loads((deployment.GCP / "topology.auto.tfvars.json").read_text())["topology"]

    assert written["topics"] == list(declared.topics)
    assert written["subscriptions"].keys() == declared.subscriptions.keys()
    for name, one in written["subscriptions"].items():
        applied = _subscription(declared, name, "p")
        assert applied.topic == f"projects/p/topics/{one['topic']}"
        assert seconds(applied.message_retention_duration) == float(one["retention"][:-1])
        assert applied.ack_deadline_seconds == written["ack_deadline_seconds"]
        assert applied.enable_exactly_once_delivery == one["exactly_once"]
        assert bool(applied.push_config.push_endpoint) == one["push"]
        if one["dead_letter_topic"]:
            assert applied.dead_letter_policy.dead_letter_topic == f"projects/p/topics/{one['dead_letter_topic']}"
            assert applied.dead_letter_policy.max_delivery_attempts == written["max_delivery_attempts"]
            backoff = [applied.retry_policy.minimum_backoff, applied.retry_policy.maximum_backoff]
            stated = [float(written[f"{which}_backoff"][:-1]) for which in ("minimum", "maximum")]
            assert [seconds(one) for one in backoff] == stated
        else:
            assert not applied.dead_letter_policy.dead_letter_topic


def test_terraform_and_kubernetes_run_the_processes_and_migrations_of_docker() -> None:
    deployments = commands(manifests("labour", "notification"), "Deployment")
    migrations = commands(manifests("migrations"), "Job")
    on_cloud_run = {
        name: json.loads(command)
        for name, command in re.findall(r"^    ([a-z-]+) += \{ .*command = (\[.*\]) \}$", terraform(), re.MULTILINE)
    }
    jobs = dict(re.findall(r"^    ([a-z-]+) += \{ .*command = \"(.*)\" \}$", terraform(), re.MULTILINE))

    assert deployments == PROCESSES
    operators = {
        name: on_cloud_run.pop(f"{name}-operators") for name in SERVICES
    }  # the same process, reached at another port
    assert operators == {name: PROCESSES[f"{name}-api"] for name in SERVICES}
    assert on_cloud_run == PROCESSES
    assert migrations == MIGRATIONS
    assert {name: command.split() for name, command in jobs.items() if name != "notification-drain"} == MIGRATIONS


def test_the_sms_sandbox_of_the_small_overlay_is_that_of_docker_and_every_probe_names_a_host_that_is_answered() -> None:
    stand_ins = list(yaml.safe_load_all((BASE.parent / "small" / "stand-ins.yaml").read_text()))
    sandbox = next(
        one for one in stand_ins if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "sms-sandbox"
    )

    assert sandbox["spec"]["template"]["spec"]["containers"][0]["args"] == COMPOSE["sms-sandbox"]["command"]
    for one in [*stand_ins, *manifests("apis"), *manifests("workers")]:
        for container in one["spec"].get("template", {"spec": {"containers": []}})["spec"]["containers"]:
            for name, probe in container.items():
                if name.endswith("Probe"):
                    assert probe["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def on_google_cloud(process: str) -> set[str]:
    """The variables of a process: `settings` of its service, and the block of `secrets` that names the process."""
    service = process.partition("-")[0]
    blocks = re.findall(rf"^    {service} = (?:merge\()?\{{\n(.*?)\n    \}}", terraform(), re.MULTILINE | re.DOTALL)
    blocks += re.findall(rf"for name in \[[^]]*\"{process}\".*?: name => \{{\n(.*?)\n    \}}", terraform(), re.DOTALL)
    return set(re.findall(r"^      ([A-Z_]+) +=", "\n".join(blocks), re.MULTILINE))


def on_kubernetes(process: str) -> set[str]:
    """The settings of the overlay, and those of the Secret of the process, which the page creates."""
    service = process.partition("-")[0]
    overlay = yaml.safe_load((BASE.parent / "production" / "kustomization.yaml").read_text())
    literals = next(one["literals"] for one in overlay["configMapGenerator"] if one["name"] == service)
    page = (PROJECT_ROOT / "docs" / "deploy-kubernetes.md").read_text()
    secret = re.findall(rf"secret generic {process} (.+)", page) if process in secrets_of_manifests() else []
    return {one.partition("=")[0] for one in literals} | set(re.findall(r"literal=([A-Z_]+)=", " ".join(secret)))


def secrets_of_manifests() -> set[str]:
    """Every Secret that the base mounts has the name of the one process that mounts it."""
    found = set()
    for one in manifests("labour", "notification", "migrations"):
        sources = one["spec"]["template"]["spec"]["containers"][0]["envFrom"]
        mounted = [source["secretRef"]["name"] for source in sources if "secretRef" in source]
        assert mounted in ([], [one["metadata"]["name"]])
        found.update(mounted)
    return found


def value(name: str) -> str:
    """A value of the variable that a live system could have."""
    known = {"TWILIO_ACCOUNT_SID": "AC" + "1a" * 16, "TWILIO_FROM": "+12025550123", "HTTP_KEEP_ALIVE_SECONDS": "620"}
    if name.endswith("_PORT"):
        return "8401"
    if name.startswith("OPERATOR_"):
        return f"grace:{sha256(name.encode()).hexdigest()}"
    return known.get(name, "https://example.org/x" if name.endswith(("_URL", "_ISSUER")) else "1a" * 16)


@pytest.mark.parametrize("process", LOAD)
@pytest.mark.parametrize("given_by", [on_google_cloud, on_kubernetes])
def test_a_process_starts_with_the_settings_that_production_gives_it_and_gets_no_secret_of_another(
    process: str, given_by: Callable[[str], set[str]]
) -> None:
    service = process.partition("-")[0]
    database = {f"{service.upper()}_DATABASE_URL": f"postgresql+asyncpg://fern@127.0.0.1:5432/{service}"}
    given = given_by(process)

    LOAD[process]({name: value(name) for name in given} | database)

    own = {secret for secret, processes in SECRETS.items() if process in processes and secret != "TOKEN_SECRET"}
    assert given & SECRETS.keys() == own - database.keys()


def test_the_listener_of_operators_gets_the_secrets_of_the_api_that_it_is() -> None:
    for service in SERVICES:
        assert on_google_cloud(f"{service}-operators") == on_google_cloud(f"{service}-api")


def test_the_small_overlay_gives_each_process_its_own_secrets_and_the_owner_of_a_database_to_its_migrations() -> None:
    overlay = yaml.safe_load((BASE.parent / "small" / "kustomization.yaml").read_text())
    secrets = {
        one["name"]: {literal.partition("=")[0] for literal in one["literals"]} for one in overlay["secretGenerator"]
    }
    mounted = {
        (one["target"]["kind"], one["target"]["labelSelector"]): re.findall(
            r"secretRef: \{ name: ([a-z-]+) \}", one["patch"]
        )
        for one in overlay["patches"]
        if "patch" in one
    }

    assert mounted == {
        **{("Deployment", f"service={service}"): [f"{service}-database"] for service in SERVICES},
        **{("Job", f"service={service}"): [f"{service}-database-owner"] for service in SERVICES},
    }
    for process in secrets_of_manifests():
        own = {secret for secret, processes in SECRETS.items() if process in processes}
        assert secrets[process] == {name for name in own if not name.endswith("_DATABASE_URL")}


def test_every_process_has_a_budget_an_account_and_a_priority() -> None:
    deployments = [one for one in manifests("labour", "notification") if one["kind"] == "Deployment"]
    budgets = {
        one["metadata"]["name"]: one["spec"]["selector"]["matchLabels"] for one in manifests("disruption-budgets")
    }
    accounts = {one["metadata"]["name"] for one in manifests("service-accounts")}

    assert budgets == {name: {"process": name} for name in PROCESSES}
    assert accounts == PROCESSES.keys() | MIGRATIONS.keys()
    for one in deployments:
        pod = one["spec"]["template"]
        assert pod["spec"]["serviceAccountName"] == one["metadata"]["name"] == pod["metadata"]["labels"]["process"]
        later = one["metadata"]["name"] == "labour-statistics"
        assert pod["spec"]["priorityClassName"] == ("fernlabour-later" if later else "fernlabour-path")


@pytest.mark.parametrize("folder", ["base", "small", "production"])
def test_no_network_policy_lets_a_service_reach_the_database_of_the_other(folder: str) -> None:
    policies = yaml.safe_load_all((BASE.parent / folder / "network-policies.yaml").read_text())
    reached = dict[str, set[str]]()
    for policy in policies:
        service = policy["spec"]["podSelector"].get("matchLabels", {}).get("service")
        for rule in policy["spec"].get("egress", []):
            if service and {port["port"] for port in rule["ports"]} & {5432, 3307}:
                reached.setdefault(service, set()).update(json.dumps(target) for target in rule["to"])

    assert not reached.get("labour", set()) & reached.get("notification", set())
    assert reached.keys() == (set() if folder == "small" else set(SERVICES))


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

"""What production is made of, compared with what runs here: processes, topology, settings and secrets."""

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from e2e.support.process_settings import LOAD
from fern import deployment
from fern.settings import PROJECT_ROOT, SECRETS, SERVICES
from fern.topology import Declared, _subscription

COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "docker-compose.yml").read_text())["services"]
PROCESSES = {
    name: service["command"]
    for name, service in COMPOSE.items()
    if service["image"] in ("fernlabour-labour", "fernlabour-notification") and not name.endswith("-migrations")
}
MIGRATIONS = {name: service["command"] for name, service in COMPOSE.items() if name.endswith("-migrations")}
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


def on_google_cloud(process: str) -> dict[str, str]:
    """The variables of a process, from `settings` of its service and the block of `secrets` that names the process. A number is
    there with its value.
    """
    service = process.partition("-")[0]
    blocks = re.findall(rf"^    {service} = (?:merge\()?\{{\n(.*?)\n    \}}", terraform(), re.MULTILINE | re.DOTALL)
    blocks += re.findall(rf"for name in \[[^]]*\"{process}\".*?: name => \{{\n(.*?)\n    \}}", terraform(), re.DOTALL)
    return dict(re.findall(r"^      ([A-Z_]+) += (?:\"(\d+)\")?", "\n".join(blocks), re.MULTILINE))


def on_kubernetes(process: str) -> dict[str, str]:
    """The settings of the overlay, and those of the Secret of the process, which the page creates."""
    service = process.partition("-")[0]
    overlay = yaml.safe_load((BASE.parent / "production" / "kustomization.yaml").read_text())
    literals = next(one["literals"] for one in overlay["configMapGenerator"] if one["name"] == service)
    page = (PROJECT_ROOT / "docs" / "deploy-kubernetes.md").read_text()
    secret = re.findall(rf"secret generic {process} (.+)", page) if process in secrets_of_manifests() else []
    return dict.fromkeys((one.partition("=")[0] for one in literals), "") | dict.fromkeys(
        re.findall(r"literal=([A-Z_]+)=", " ".join(secret)), ""
    )


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


def start(process: str, given: Mapping[str, str]) -> None:
    """Load the settings of the process. Raises if one is missing."""
    service = process.partition("-")[0]
    database = {f"{service.upper()}_DATABASE_URL": f"postgresql+asyncpg://fern@127.0.0.1:5432/{service}"}
    LOAD[process]({name: known or value(name) for name, known in given.items()} | database)


def secrets_of(process: str) -> set[str]:
    """The secrets that the process reads, but for those that production does not have: its URL of the database has none."""
    own = {secret for secret, processes in SECRETS.items() if process in processes and secret != "TOKEN_SECRET"}
    return {name for name in own if not name.endswith("_DATABASE_URL")}


OPERATORS = {"OPERATOR_READ_TOKENS", "OPERATOR_WRITE_TOKENS"}


@pytest.mark.parametrize("process", LOAD)
def test_a_process_starts_with_the_settings_of_google_cloud_and_gets_no_secret_of_another(process: str) -> None:
    given = on_google_cloud(process)

    start(process, given)

    # The APIs have no listener of operators there, so they get no tokens.
    assert given.keys() & SECRETS.keys() == secrets_of(process) - OPERATORS


@pytest.mark.parametrize("process", LOAD)
def test_a_process_starts_with_the_settings_of_kubernetes_and_gets_no_secret_of_another(process: str) -> None:
    given = on_kubernetes(process)

    start(process, given)

    assert given.keys() & SECRETS.keys() == secrets_of(process)


@pytest.mark.parametrize("service", SERVICES)
def test_the_listener_of_operators_starts_with_its_settings_and_is_the_only_one_with_their_tokens(service: str) -> None:
    given = on_google_cloud(f"{service}-operators")

    start(f"{service}-api", given | {f"{service.upper()}_OPERATORS_PORT": "8407"})

    assert given.keys() - on_google_cloud(f"{service}-api").keys() == OPERATORS


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


def test_an_upgrade_replaces_what_reads_events_before_what_records_them() -> None:
    consumers = {name for name, command in PROCESSES.items() if command[-1] in ("consumer", "statistics")}
    page = (PROJECT_ROOT / "docs" / "deploy-kubernetes.md").read_text()
    [selected] = re.findall(r"--selector 'process in \(([a-z,-]+)\)'", page)
    labels = {
        one["metadata"]["name"]: one["metadata"]["labels"]["process"] for one in manifests("labour", "notification")
    }
    on_google_cloud = re.findall(
        r"^  consumers = \{ (.*) \}$", (deployment.GCP / "pubsub.tf").read_text(), re.MULTILINE
    )

    assert set(selected.split(",")) == consumers
    assert all(label == name for name, label in labels.items())
    assert set(re.findall(r'"([a-z-]+)"', on_google_cloud[0])) == consumers


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

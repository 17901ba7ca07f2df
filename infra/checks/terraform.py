"""Terraform without its provider: every file loads, every name that is used is declared, every argument exists, and no resource
is one that only google-beta has, a provider that is not required here.

`terraform validate` needs the provider, which has to be downloaded. Pulumi's provider is generated from the same schema: the
classes of its package have the same arguments, in snake case, and in the plural where a block can be repeated (so a plural that
is wrong is not noticed). Not seen here: types, allowed values, required arguments, and what Google Cloud says to it.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hcl2

META = {"for_each", "count", "depends_on", "lifecycle", "provider"}
# The class of each resource. A type that is missing here is a problem, so that none is left out.
CLASSES = {
    "google_artifact_registry_repository": "artifactregistry.Repository",
    "google_billing_budget": "billing.Budget",
    "google_cloud_run_v2_job": "cloudrunv2.Job",
    "google_cloud_run_v2_job_iam_member": "cloudrunv2.JobIamMember",
    "google_cloud_run_v2_service": "cloudrunv2.Service",
    "google_cloud_run_v2_service_iam_member": "cloudrunv2.ServiceIamMember",
    "google_cloud_run_v2_worker_pool": "cloudrunv2.WorkerPool",
    "google_cloud_scheduler_job": "cloudscheduler.Job",
    "google_compute_global_address": "compute.GlobalAddress",
    "google_compute_network": "compute.Network",
    "google_compute_subnetwork": "compute.Subnetwork",
    "google_monitoring_alert_policy": "monitoring.AlertPolicy",
    "google_monitoring_notification_channel": "monitoring.NotificationChannel",
    "google_monitoring_uptime_check_config": "monitoring.UptimeCheckConfig",
    "google_project_iam_member": "projects.IAMMember",
    "google_project_service": "projects.Service",
    "google_project_service_identity": "projects.ServiceIdentity",  # beta: here for the test
    "google_pubsub_subscription": "pubsub.Subscription",
    "google_pubsub_subscription_iam_member": "pubsub.SubscriptionIAMMember",
    "google_pubsub_topic": "pubsub.Topic",
    "google_pubsub_topic_iam_member": "pubsub.TopicIAMMember",
    "google_secret_manager_secret": "secretmanager.Secret",
    "google_secret_manager_secret_iam_member": "secretmanager.SecretIamMember",
    "google_secret_manager_secret_version": "secretmanager.SecretVersion",
    "google_service_account": "serviceaccount.Account",
    "google_service_account_iam_member": "serviceaccount.IAMMember",
    "google_service_networking_connection": "servicenetworking.Connection",
    "google_sql_database": "sql.Database",
    "google_sql_database_instance": "sql.DatabaseInstance",
    "google_sql_user": "sql.User",
}

Arguments = dict[str, str]  # the type of each argument


def problems(folder: Path) -> Iterator[str]:
    files = {path: path.read_text() for path in sorted(folder.glob("*.tf"))}
    blocks = [(path.name, hcl2.loads(text)) for path, text in files.items()]
    for file, content in blocks:
        for resource in content.get("resource", []):
            for quoted, named in resource.items():
                type_ = quoted.strip('"')
                if type_ not in CLASSES:
                    yield f"{file}: {type_} is not in the table of {Path(__file__).name}"
                    continue
                module, _, name = CLASSES[type_].partition(".")
                if _is_beta(module, name):
                    yield f"{file}: {type_} exists in the provider google-beta only"
                for label, body in named.items():
                    where = f"{file}: {type_}.{label.strip(chr(34))}"
                    yield from _unknown(where, module, f"{name}Args", body)
    local = {name for _, content in blocks for one in content.get("locals", []) for name in one}
    yield from _undeclared("\n".join(files.values()), local)


def _unknown(where: str, module: str, name: str, body: dict[str, Any]) -> Iterator[str]:
    arguments = _arguments(module, name)
    for key, value in body.items():
        if key.startswith("__") or (key in META and key not in arguments and f"{key}s" not in arguments):
            continue
        if key == "dynamic":
            for one in value:
                for label, dynamic in one.items():
                    content = {label.strip('"'): list(dynamic["content"])}
                    yield from _unknown(where, module, name, content)
            continue
        found = next((form for form in _forms(key) if form in arguments), None)
        if found is None:
            yield f"{where}: there is no argument {key} in {module}.{name.removesuffix('Args')}"
            continue
        nested = re.search(r"'(\w+Args)'", arguments[found])
        for block in value if isinstance(value, list) else [value]:
            if nested and isinstance(block, dict):
                yield from _unknown(f"{where}.{key}", module, nested[1], block)


def _forms(name: str) -> list[str]:
    """The name itself, its plural and its singular."""
    return [name, f"{name}s", f"{name}es", re.sub("y$", "ies", name), name.removesuffix("s")]


def _undeclared(text: str, local: set[str]) -> Iterator[str]:
    """Names of variables, locals, resources and data sources that are used and nowhere declared."""
    text = re.sub(r"(?m)^\s*#.*$|\s#\s.*$", "", text)
    declared = {
        "var": set(re.findall(r'(?m)^variable "(\w+)"', text)),
        "local": local,
        "data": {".".join(pair) for pair in re.findall(r'(?m)^data "(\w+)" "(\w+)"', text)},
        "ephemeral": {".".join(pair) for pair in re.findall(r'(?m)^ephemeral "(\w+)" "(\w+)"', text)},
    }
    resources = {".".join(pair) for pair in re.findall(r'(?m)^resource "(\w+)" "(\w+)"', text)}
    for kind, pattern in (
        ("var", r"(\w+)"),
        ("local", r"(\w+)"),
        ("data", r"(\w+\.\w+)"),
        ("ephemeral", r"(\w+\.\w+)"),
    ):
        for used in sorted(set(re.findall(rf"(?<![\w.\"]){kind}\.{pattern}", text)) - declared[kind]):
            yield f"{kind}.{used} is used and not declared"
    for used in sorted(set(re.findall(r"(?<![\w.\"/-])(google_\w+\.\w+)", text)) - resources):
        yield f"{used} is used and not declared"


@cache
def _is_beta(module: str, name: str) -> bool:
    """Pulumi has the resources of both providers, and says so in the description of those that only google-beta has."""
    texts = [ast.unparse(node) for file in _files(module) for node in _classes(file) if node.name == name]
    return any("should be used with the terraform-provider-google-beta" in text for text in texts)


@cache
def _arguments(module: str, name: str) -> Arguments:
    for file in _files(module):
        for node in _classes(file):
            if node.name == name:
                init = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"][-1]
                given = [*init.args.args, *init.args.kwonlyargs]
                return {one.arg: ast.unparse(one.annotation) for one in given if one.annotation}
    raise LookupError(f"pulumi_gcp.{module} has no {name}")


@cache
def _files(module: str) -> list[Path]:
    return sorted((_package() / module).glob("*.py"))


@cache
def _classes(file: Path) -> list[ast.ClassDef]:
    return [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]


def _package() -> Path:
    found = find_spec("pulumi_gcp")  # looked up, not imported: its dependencies are not installed
    if found is None or found.origin is None:
        raise LookupError("pulumi_gcp is not installed")
    return Path(found.origin).parent

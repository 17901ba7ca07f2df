"""The network policies of infra/kubernetes, evaluated for every pod: which database it reaches, and who reads its metrics."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from fern.settings import SERVICES

from .test_deployment import BASE, manifests

DATABASE_PORTS = (5432, 3307)  # PostgreSQL's own, and that of Cloud SQL's proxy
Labels = Mapping[str, str]


def policies(*folders: str) -> list[dict[str, Any]]:
    files = [BASE.parent / folder / "network-policies.yaml" for folder in folders]
    return [one for file in files for one in yaml.safe_load_all(file.read_text())]


def pods() -> dict[str, Labels]:
    """The labels of the pods of every process and migration."""
    workloads = [one for one in manifests("labour", "notification", "migrations") if "template" in one.get("spec", {})]
    return {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in workloads}


def selects(selector: Mapping[str, Any], labels: Labels) -> bool:
    """Whether a selector selects these labels. An empty one selects everything."""
    for wanted in selector.get("matchExpressions", []):
        found = labels.get(wanted["key"])
        holds = {
            "In": found in wanted.get("values", []),
            "NotIn": found not in wanted.get("values", []),
            "Exists": found is not None,
            "DoesNotExist": found is None,
        }
        if not holds[wanted["operator"]]:
            return False
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())


def reached_databases(policies: list[dict[str, Any]], labels: Labels) -> set[str]:
    """Where a pod can reach a port of a database, as JSON. A rule without ports is for all, one without `to` for everything."""
    found = set[str]()
    for policy in policies:
        if not selects(policy["spec"]["podSelector"], labels):
            continue
        for rule in policy["spec"].get("egress", []):
            ports = rule.get("ports", [{}])
            if any(is_database(port) for port in ports):
                found.update(json.dumps(target) for target in rule.get("to") or ["everything"])
    return found


def is_database(port: Mapping[str, Any]) -> bool:
    if "port" not in port:
        return True
    return any(port["port"] <= one <= port.get("endPort", port["port"]) for one in DATABASE_PORTS)


def own_database(service: str) -> str:
    return json.dumps({"podSelector": {"matchLabels": {"database": service}}})


@pytest.mark.parametrize("pod", pods())
def test_in_the_small_overlay_a_pod_reaches_the_database_of_its_service_and_no_other(pod: str) -> None:
    service = pod.partition("-")[0]

    assert reached_databases(policies("base", "small"), pods()[pod]) == {own_database(service)}


@pytest.mark.parametrize("pod", pods())
def test_in_production_a_pod_reaches_the_address_of_its_database_and_no_other(pod: str) -> None:
    service = pod.partition("-")[0]
    addresses = {name: {"ipBlock": {"cidr": f"10.20.0.{number}/32"}} for number, name in enumerate(SERVICES, start=2)}

    reached = reached_databases(policies("base", "production"), pods()[pod])

    assert reached == {own_database(service), json.dumps(addresses[service])}


@pytest.mark.parametrize("selector", [{}, {"matchExpressions": [{"key": "process", "operator": "Exists"}]}])
@pytest.mark.parametrize("ports", [{"ports": [{"port": 5432}]}, {"ports": [{"port": 5000, "endPort": 6000}]}, {}])
def test_a_policy_that_opens_the_databases_to_every_pod_is_found(
    selector: dict[str, Any], ports: dict[str, Any]
) -> None:
    opened = {"spec": {"podSelector": selector, "egress": [{"to": [{"podSelector": {}}], **ports}]}}

    assert reached_databases([opened], pods()["labour-api"]) == {'{"podSelector": {}}'}


@pytest.mark.parametrize("namespace", ["gmp-system", "gke-gmp-system"])
def test_googles_collector_reads_the_metrics_of_every_process_wherever_it_runs(namespace: str) -> None:
    collector = {"kubernetes.io/metadata.name": namespace}

    for name, labels in pods().items():
        allowed = [
            peer
            for policy in policies("base", "production")
            if selects(policy["spec"]["podSelector"], labels)
            for rule in policy["spec"].get("ingress", [])
            if {"protocol": "TCP", "port": 8080} in rule["ports"]
            for peer in rule["from"]
            if selects(peer["namespaceSelector"], collector)
        ]
        assert bool(allowed) == (not name.endswith("-migrations")), name

"""Every replica that production may start gets its connections: their maxima, compared with `max_connections` of the servers."""

import re

import pytest
import yaml  # type: ignore[import-untyped]

from fern import deployment, sizing
from fern.settings import SERVICES

from .test_deployment import BASE

SCALING = BASE.parent / "production" / "scaling.yaml"


def most_connections() -> int:
    """`max_connections` of the servers of infra/gcp."""
    [found] = re.findall(
        r'name  = "max_connections"\n\s+value = "(\d+)"', (deployment.GCP / "databases.tf").read_text()
    )
    return int(found)


def shares(service: str, replicas: dict[str, int]) -> int:
    return sum(sizing.CONNECTIONS[name] * count for name, count in replicas.items() if name.startswith(f"{service}-"))


@pytest.mark.parametrize("service", SERVICES)
def test_on_kubernetes_a_server_has_twice_the_connections_of_all_replicas(service: str) -> None:
    documents = [one for one in yaml.safe_load_all(SCALING.read_text()) if "scaleTargetRef" in one["spec"]]
    replicas = {
        one["spec"]["scaleTargetRef"]["name"]: one["spec"].get("maxReplicaCount") or one["spec"]["maxReplicas"]
        for one in documents
    }

    assert replicas.keys() == sizing.CONNECTIONS.keys()
    assert 2 * shares(service, replicas) <= most_connections()


@pytest.mark.parametrize("service", SERVICES)
def test_on_cloud_run_a_server_has_twice_the_connections_of_all_instances(service: str) -> None:
    [(apis, operators)] = re.findall(
        r"max_instance_count = contains\(keys\(local.apis\), each.key\) \? (\d+) : (\d+)",
        (deployment.GCP / "run.tf").read_text(),
    )
    replicas = dict.fromkeys(sizing.CONNECTIONS, 1)  # of workers, unless the variable `replicas` has another number
    replicas |= {f"{name}-api": int(apis) + int(operators) for name in SERVICES}

    assert 2 * shares(service, replicas) <= most_connections()

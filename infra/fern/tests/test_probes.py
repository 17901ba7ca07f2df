"""The probes of production ask the listener that every process has."""

from contextlib import nullcontext
from weakref import WeakSet

import httpx
import pytest

from messaging import progress
from messaging.progress import Outage, step
from servicekit.monitor import Monitor

from .test_deployment import COMPOSE, PROCESSES, manifests, terraform


@pytest.mark.system
@pytest.mark.parametrize(
    ("waits", "stuck", "alive", "ready"),
    [(False, False, True, True), (True, False, True, False), (False, True, False, False)],
    ids=["working", "waiting for the database", "stuck"],
)
async def test_a_worker_that_waits_for_the_database_is_not_ready_and_not_restarted(
    monkeypatch: pytest.MonkeyPatch, waits: bool, stuck: bool, alive: bool, ready: bool
) -> None:
    (worker,) = manifests("workers")
    container = worker["spec"]["template"]["spec"]["containers"][0]
    monitor, outage = Monitor(step_seconds=0.0, names=("labour-relay",)), Outage("database")
    monkeypatch.setattr(progress, "_outages", WeakSet())
    if waits:
        outage.failed("it does not answer")
    monkeypatch.setattr(progress, "_failed_at", 0.0)

    async with monitor.listening("127.0.0.1", 0), httpx.AsyncClient(trust_env=False, timeout=60) as client:

        async def passes(probe: str) -> bool:
            get = container[probe]["httpGet"]
            assert get["port"] == "monitor"
            headers = {header["name"]: header["value"] for header in get["httpHeaders"]}
            return (await client.get(f"http://127.0.0.1:{monitor.port}{get['path']}", headers=headers)).is_success

        with step("publishing events") if stuck else nullcontext():
            assert [await passes(one) for one in ("startupProbe", "livenessProbe", "readinessProbe")] == [
                alive,
                alive,
                ready,
            ]


def test_every_process_listens_for_probes_and_metrics_at_one_port() -> None:
    (pod,) = manifests("pods")
    process = pod["spec"]["template"]["spec"]["containers"][0]
    set_here = {variable["name"]: variable["value"] for variable in process["env"]}
    in_docker = {COMPOSE[name]["environment"]["MONITOR_PORT"] for name in PROCESSES}

    assert set_here == {"MONITOR_HOST": "0.0.0.0", "MONITOR_PORT": "8080", "OTEL_METRICS_EXPORTER": "none"}
    assert process["ports"] == [{"name": "monitor", "containerPort": 8080}]
    assert in_docker == {8080}
    assert "monitor_port = 8080" in terraform()

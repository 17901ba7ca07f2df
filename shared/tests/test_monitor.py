"""Every process answers probes and Prometheus over HTTP, whatever it waits for, and the listener never disturbs it."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakSet

import httpx
import pytest

from e2e.support import metrics
from e2e.support.waiting import eventually, until
from messaging import progress
from messaging.progress import Outage, step
from servicekit.monitor import MAX_CONNECTIONS, MAX_HEAD, Monitor

pytestmark = pytest.mark.system

PROCESS = """
import asyncio, sys
from messaging import metrics
from servicekit.process import run

async def main(stop):
    await {main}
    print("sdk imported:", "opentelemetry.sdk" in sys.modules)
    print("metrics recorded:", metrics.enabled)

run("tests-relay", main)
"""


@pytest.fixture(autouse=True)
def no_other_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_outages", WeakSet())
    monkeypatch.setattr(progress, "_steps", {})
    monkeypatch.setattr(progress, "_failed_at", 0.0)


@asynccontextmanager
async def listening(monitor: Monitor) -> AsyncIterator[httpx.AsyncClient]:
    metrics.record()
    async with (
        monitor.listening("127.0.0.1", 0),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{monitor.port}", trust_env=False, timeout=60) as client,
    ):
        yield client


async def test_a_process_is_live_while_it_works_or_waits_and_not_when_it_is_stuck() -> None:
    outage, seen = Outage("bus"), dict[str, tuple[int, int]]()
    async with listening(Monitor(step_seconds=0.0)) as client:

        async def look() -> None:
            live, ready = await client.get("/health/live"), await client.get("/health/ready")
            assert live.json()["state"] == ready.json()["state"]
            seen[live.json()["state"]] = live.status_code, ready.status_code

        await look()
        outage.failed("it does not answer")
        await look()
        outage.over()
        progress._failed_at = 0.0
        with step("publishing events"):
            await look()

    assert seen == {"working": (200, 200), "waiting": (200, 503), "stuck": (503, 503)}


async def test_in_local_mode_a_page_under_another_name_reads_nothing() -> None:
    async with listening(Monitor(names=("labour-relay",))) as client:
        answers = {
            host: (await client.get("/metrics", headers={"Host": host})).status_code
            for host in ("127.0.0.1:1", "labour-relay:8080", "attacker.example")
        }

    assert answers == {"127.0.0.1:1": 200, "labour-relay:8080": 200, "attacker.example": 403}


async def test_only_its_three_routes_can_be_read() -> None:
    async with listening(Monitor()) as client:
        assert (await client.get("/")).status_code == 404
        assert (await client.post("/health/live")).status_code == 405
        answer = await client.get("/metrics?x=1")

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "process_resident_memory_bytes" in answer.text


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (b"hello\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET /" + b"a" * 4 * MAX_HEAD, b""),
    ],
    ids=["no request", "no header", "too long"],
)
async def test_a_bad_request_harms_no_other(sent: bytes, answers: bytes) -> None:
    monitor = Monitor()
    async with listening(monitor) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", monitor.port)
        writer.write(sent)
        answer = await reader.read(100)
        writer.close()

        assert answer[:12] == answers
        assert (await client.get("/health/live")).status_code == 200


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    monitor = Monitor()
    async with listening(monitor) as client:
        held = [await asyncio.open_connection("127.0.0.1", monitor.port) for _ in range(MAX_CONNECTIONS)]
        reader, writer = await asyncio.open_connection("127.0.0.1", monitor.port)
        assert await reader.read() == b""
        for _, one in (*held, (reader, writer)):
            one.close()
            await one.wait_closed()

        async def answers() -> bool:
            try:
                return (await client.get("/health/live")).status_code == 200
            except httpx.TransportError:
                return False

        await eventually(answers, what="it answers again")


def test_a_worker_writes_its_port_into_its_heartbeat_and_goes_on_if_a_port_is_taken(tmp_path: Path) -> None:
    free, taken = tmp_path / "free", tmp_path / "taken"
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        start("stop.wait()", HEARTBEAT_FILE=str(free), MONITOR_PORT="0") as one,
        start("stop.wait()", HEARTBEAT_FILE=str(taken), MONITOR_PORT=str(other.getsockname()[1])) as two,
    ):
        for heartbeat in (free, taken):
            until(heartbeat.exists, what="it writes a heartbeat")
        answer = metrics.monitor(free, "/health/live")
        for process in (one, two):
            process.terminate()
        output, ended = two.communicate(timeout=60)[0], one.wait(60)

    assert answer.json() == {"state": "working", "reason": ""}
    assert json.loads(taken.read_text()) == {"state": "working", "reason": ""}
    assert "no listener for probes and metrics" in output
    assert (ended, two.returncode) == (0, 0)


@pytest.mark.parametrize(
    ("variables", "imported"),
    [
        ({}, False),
        ({"MONITOR_PORT": "0"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
    ],
    ids=["neither", "a listener", "an endpoint that does not answer"],
)
def test_the_sdk_is_imported_only_if_something_reads_the_metrics(variables: dict[str, str], imported: bool) -> None:
    with start("asyncio.sleep(0)", **variables) as process:
        output, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert f"sdk imported: {imported}" in output
    assert f"metrics recorded: {imported}" in output


def test_an_endpoint_can_be_for_traces_only() -> None:
    only_traces = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "none"}
    with start("asyncio.sleep(0)", **only_traces) as process:
        output, _ = process.communicate(timeout=60)

    assert "sdk imported: True" in output
    assert "metrics recorded: False" in output


def start(main: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS.format(main=main)]
    return subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)

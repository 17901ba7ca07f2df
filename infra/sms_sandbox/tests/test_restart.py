"""A real process, killed the hard way or told to stop, also in the very moment in which there is something to do."""

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp
import httpx
import pytest

from sms_sandbox.process import JsonLines, configure
from sms_sandbox.sandbox import Sandbox, Settings

from .parts import PHONE, SENDER, Client, TwilioRestException, WebhookReceiver, eventually, twilio_client

pytestmark = pytest.mark.system

SERVE = [sys.executable, "-m", "sms_sandbox", "serve"]


class SandboxProcess:
    def __init__(self, data_dir: Path, *options: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("TWILIO_", "SMS_"))}
        command = [*SERVE, "--port", "0", "--data-dir", str(data_dir), "--pace", "0.01", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.url = str(self.log_line("sms sandbox ready")["url"])

    def log_line(self, event: str) -> dict[str, object]:
        assert self.process.stdout
        for line in self.process.stdout:
            fields: dict[str, object] = json.loads(line)
            if fields["event"] == event:
                return fields
        raise AssertionError(f"it ended without the log line {event!r}")

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stdout
        self.process.stdout.close()
        return code


@contextmanager
def serving(data_dir: Path, *options: str) -> Iterator[SandboxProcess]:
    process = SandboxProcess(data_dir, *options)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.end(signal.SIGKILL)


async def test_every_answered_message_is_there_after_kill_9_under_load(tmp_path: Path) -> None:
    answered: list[str] = []

    async def send_until_it_dies(client: Client) -> None:
        with suppress(aiohttp.ClientError):
            while True:
                answered.append((await client.messages.create_async(to=PHONE, from_=SENDER, body="Hello")).sid)

    with serving(tmp_path) as first:
        async with twilio_client(first.url) as client:
            senders = [asyncio.create_task(send_until_it_dies(client)) for _ in range(8)]
            await eventually(lambda: len(answered), lambda count: count >= 50)
            first.end(signal.SIGKILL)
            await asyncio.gather(*senders)

    with serving(tmp_path) as second:
        async with twilio_client(second.url) as client:
            kept = {message.sid for message in await client.messages.list_async(to=PHONE)}
    assert set(answered) <= kept


async def test_opt_outs_faults_and_late_messages_survive_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        async with httpx.AsyncClient(base_url=first.url, trust_env=False) as api, twilio_client(first.url) as client:
            await api.put("/faults/created-late", json={"seconds": 1, "times": 1})
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await client.messages.create_async(to=PHONE, from_=SENDER, body="late")
            await api.post("/sandbox/inbound", json={"from": "+447700900999", "body": "STOP"})
            await api.put("/faults/list-lag", json={"rate": 0.5, "seed": 11, "seconds": 3})
        first.end(signal.SIGKILL)

    with serving(tmp_path) as second:
        said = second.log_line("faults are on")
        async with httpx.AsyncClient(base_url=second.url, trust_env=False) as api, twilio_client(second.url) as client:
            faults = {item["name"]: item for item in (await api.get("/faults")).json()["items"] if item["active"]}
            with pytest.raises(TwilioRestException) as refused:
                await client.messages.create_async(to="+447700900999", from_=SENDER, body="Hello")
            texts = partial(api.get, "/sandbox/messages", params={"to": PHONE})
            found = await eventually(texts, lambda found: bool(found.json()["items"]))

    assert said["faults"] == ["list-lag"]
    assert (faults["list-lag"]["rate"], faults["list-lag"]["seed"], faults["list-lag"]["seconds"]) == (0.5, 11, 3)
    assert refused.value.code == 21610
    assert [item["body"] for item in found.json()["items"]] == ["late"]


async def test_callbacks_that_were_waiting_are_told_after_a_kill(tmp_path: Path, receiver: WebhookReceiver) -> None:
    patient = ("--callback-retries", "10")
    receiver.answers = [503] * 4
    with serving(tmp_path, *patient) as first:
        async with twilio_client(first.url) as client:
            await client.messages.create_async(to=PHONE, from_=SENDER, body="Hello", status_callback=receiver.url)
        await eventually(lambda: len(receiver.taken), lambda count: count >= 1)
        first.end(signal.SIGKILL)

    with serving(tmp_path, *patient):
        await eventually(receiver.statuses, lambda statuses: "delivered" in statuses)

    assert list(dict.fromkeys(receiver.statuses())) == ["sending", "sent", "delivered"]


async def test_it_stops_when_asked_even_while_someone_watches(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        async with (
            httpx.AsyncClient(base_url=process.url, trust_env=False) as api,
            api.stream("GET", "/sandbox/events") as watching,
        ):
            await anext(watching.aiter_lines())

            code = await asyncio.to_thread(process.end, signal.SIGTERM)

    assert code == 0


def test_a_taken_port_is_named_with_the_program_that_has_it_and_a_command_to_copy(tmp_path: Path) -> None:
    with serving(tmp_path / "one") as process:
        port = process.url.rpartition(":")[2]
        command = [*SERVE, "--port", port, "--data-dir", str(tmp_path / "two")]

        second = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    assert second.returncode == 10
    assert f"127.0.0.1:{port}" in second.stderr
    assert f"lsof -i :{port}" in second.stderr
    if shutil.which("lsof"):
        assert f"(pid {process.process.pid}) has the port" in second.stderr


async def let_others_run(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(4))
async def test_a_stop_is_not_lost_when_work_arrives_at_the_same_time(tmp_path: Path, turns: int) -> None:
    sandbox = Sandbox(Settings(tmp_path))
    sandbox.store.add_callback("SM1", "AC1", "http://127.0.0.1:9/", "{}", due_at=time.time() + 3600)
    running = asyncio.create_task(sandbox.run())
    await let_others_run(10)  # the courier waits for the hour to pass

    sandbox.courier.wake.set()
    await let_others_run(turns)
    running.cancel()

    done, _ = await asyncio.wait([running], timeout=60)
    assert done, "it goes on although it was cancelled"
    sandbox.close()


def test_a_log_line_names_no_phone() -> None:
    record = logging.makeLogRecord({"msg": "refused", "levelname": "INFO", "error": f"no such number: {PHONE}"})

    line = json.loads(JsonLines().format(record))

    assert (line["event"], line["severity"], line["error"]) == ("refused", "INFO", "no such number: [phone]")


@pytest.mark.parametrize(("level", "expected"), [("INFO", []), ("DEBUG", ["ours"])])
def test_at_debug_only_our_own_lines_are_added(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], level: str, expected: list[str]
) -> None:
    for name in ("", "sms_sandbox", "asyncio", "httpx", "uvicorn"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure(level)

    logging.getLogger("sms_sandbox.courier").debug("ours")
    logging.getLogger("httpcore.http11").debug("send_request_headers.started")

    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == expected

"""`fern fault` against a running Pub/Sub emulator."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fern.cli import main
from fern.settings import PORTS
from pubsub_emulator.server import running


async def fern(*words: str) -> tuple[int, str]:
    result = await asyncio.to_thread(CliRunner().invoke, main, ["fault", *words])
    return result.exit_code, result.output


@pytest.mark.system
async def test_the_command_lists_sets_and_clears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path / "pubsub") as emulator:
        base = int(emulator.http_url.rpartition(":")[2]) - PORTS["pubsub-http"]
        monkeypatch.setenv("FERN_HOME", str(tmp_path))
        monkeypatch.setenv("FERN_PORT_BASE", str(base))

        assert (await fern("set", "bus", "delay", "--rate", "0.5", "seconds=2", "topic=labour.begun"))[0] == 0
        code, listing = await fern("ls", "bus", "--json")
        assert code == 0
        (delay,) = [item for item in json.loads(listing)["items"] if item["active"]]
        assert (delay["name"], delay["rate"], delay["seconds"], delay["topic"]) == ("delay", 0.5, 2, "labour.begun")
        assert "delay" in (await fern("ls", "bus"))[1]

        code, output = await fern("set", "bus", "gremlins")
        assert code == 1
        assert "there is no fault 'gremlins'" in output

        assert (await fern("clear", "bus"))[0] == 0
        assert not emulator.broker.faults.on

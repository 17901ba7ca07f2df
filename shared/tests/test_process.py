"""What every long-running process does beside its work: background tasks, and the heartbeat file."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.support.waiting import until
from servicekit.process import background

pytestmark = pytest.mark.system

RUN = "import asyncio\nfrom servicekit.process import background, run\n{main}\nrun('tests', main)"


def start(main: str, **variables: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", RUN.format(main=main)]
    return subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)


def test_background_work_that_fails_stops_the_process_and_says_why() -> None:
    main = """
async def fail():
    raise PermissionError("permission denied for table rate_limit")

async def main(stop):
    async with background(fail(), asyncio.Event().wait()):
        await stop.wait()
"""
    with start(main) as process:
        output, _ = process.communicate(timeout=60)

    lines = [json.loads(line) for line in output.splitlines()]
    assert [line["event"] for line in lines] == ["background work failed, stopping the process", "process stopped"]
    assert "permission denied for table rate_limit" in lines[0]["exception"]


def test_a_heartbeat_that_cannot_be_written_is_written_again_once_it_can(tmp_path: Path) -> None:
    heartbeat = tmp_path / "missing" / "heartbeat"
    main = "async def main(stop):\n    print('started', flush=True)\n    await stop.wait()"
    with start(main, HEARTBEAT_FILE=str(heartbeat)) as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"  # the first heartbeat fails: there is no such folder

        heartbeat.parent.mkdir()

        until(heartbeat.exists, what="it writes a heartbeat")
        process.terminate()


async def test_background_work_ends_with_its_block() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with background(work()):
        await asyncio.sleep(0)

    assert ended.is_set()

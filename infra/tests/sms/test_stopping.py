"""The sandbox stops when it is told to, also in the very moment in which there is something to do."""

import asyncio
import time
from pathlib import Path

import pytest

from fern.sms.sandbox import Sandbox, Settings


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

    done, _ = await asyncio.wait([running], timeout=10)
    assert done, "it goes on as if nobody had told it to stop"
    sandbox.close()

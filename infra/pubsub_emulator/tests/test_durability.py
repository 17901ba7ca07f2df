"""What was answered is on disk: the process may die at any moment, its folder does not grow for ever, and damage is found."""

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
from google.api_core.exceptions import GoogleAPICallError

from pubsub_emulator.catalog import now
from pubsub_emulator.errors import DataFolderCorrupt
from pubsub_emulator.server import Running, command, running, started
from pubsub_emulator.store import DATABASE

from .parts import Bus, connected, texts, until

pytestmark = pytest.mark.system

KILLS = 3
ENOUGH = 1500
"""Messages answered before each kill."""
WEEK = 7 * 86_400 * 1_000_000


async def test_kill_9_under_load_loses_nothing_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published, acked, in_doubt = set[str](), set[str](), set[str]()
    names: list[str] = []

    for _ in range(KILLS):
        with started(tmp_path) as process:
            async with connected(process.target, monkeypatch) as bus:
                names = names or list(await bus.pair(ack_deadline_seconds=600))
                goal = len(published) + ENOUGH
                load = [asyncio.create_task(_publish(bus, names[0], published)) for _ in range(3)]
                load.append(asyncio.create_task(_consume(bus, names[1], acked, in_doubt)))
                await until(partial(_reached, goal, published, acked), 240)
                process.kill()
                await asyncio.gather(*load)

    with started(tmp_path) as process:
        async with connected(process.target, monkeypatch) as bus, httpx.AsyncClient() as client:
            backlog = (await client.get(f"{process.http_url}/backlog")).json()["items"]
            [unacked] = [item["unacked"] for item in backlog if names[1].endswith(f"/{item['subscription']}")]
            left = {one.message.message_id for one in await bus.pull(names[1], unacked)}
    assert len(published) >= KILLS * ENOUGH
    assert published - acked - in_doubt <= left, "an answered publish was lost"
    assert not acked & left, "an answered ack was forgotten"


def _reached(goal: int, published: set[str], acked: set[str]) -> bool:
    return len(published) >= goal and bool(acked)


async def _publish(bus: Bus, topic: str, published: set[str]) -> None:
    with suppress(GoogleAPICallError):  # the process is dead
        while True:
            published.update(await bus.publish(topic, *["x" * 100] * 10))


async def _consume(bus: Bus, subscription: str, acked: set[str], in_doubt: set[str]) -> None:
    with suppress(GoogleAPICallError):
        while True:
            received = await bus.pull(subscription, 20, within=0.5)
            ids = {one.message.message_id for one in received}
            in_doubt |= ids  # until it is answered, the ack may have been stored or not
            if received:
                await bus.ack(subscription, *received)
            in_doubt -= ids
            acked |= ids


async def test_topics_subscriptions_attempts_and_order_survive_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as first, connected(first.target, monkeypatch) as bus:
        topic, dead = await bus.topic(labels={"team": "midwives"}), await bus.topic()
        policy = {"dead_letter_topic": dead, "max_delivery_attempts": 7}
        subscription = await bus.subscription(topic, enable_message_ordering=True, dead_letter_policy=policy)
        await bus.publish(topic, "1", "2", "3", ordering_key="ada")
        await bus.nack(subscription, *await bus.pull(subscription))
        before = await bus.subscriber.get_subscription(subscription=subscription)

    async with running(tmp_path) as second, connected(second.target, monkeypatch) as bus:
        received = await bus.pull(subscription, 3)
        assert texts(received) == ["1", "2", "3"]
        assert [one.delivery_attempt for one in received] == [2, 1, 1]
        assert await bus.subscriber.get_subscription(subscription=subscription) == before
        assert (await bus.publisher.get_topic(topic=topic)).labels == {"team": "midwives"}


async def test_an_ack_of_a_delivery_from_before_a_restart_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as first, connected(first.target, monkeypatch) as bus:
        topic, subscription = await bus.pair()
        await bus.publish(topic, "done", "open")
        done, _ = await bus.pull(subscription, 2)

    async with running(tmp_path) as second, connected(second.target, monkeypatch) as bus:
        await bus.ack(subscription, done)
        assert texts(await bus.pull(subscription, 2, within=3)) == ["open"]


async def test_what_every_subscription_acked_frees_its_space(emulator: Running, ours: Bus, tmp_path: Path) -> None:
    topic = await ours.topic()
    first, second = await ours.subscription(topic), await ours.subscription(topic)
    sizes = []

    for _ in range(6):
        await ours.publish(topic, *["x" * 1000] * 1000)
        for subscription in (first, second):
            await ours.ack(subscription, *await ours.pull(subscription, 1000))
        emulator.broker.expire(now())
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "pubsub").iterdir()))

    assert max(sizes) < 3 * sizes[0]
    assert not emulator.broker.catalog.subscriptions[first].unacked


async def test_what_is_older_than_its_retention_is_dropped(emulator: Running, ours: Bus) -> None:
    topic, subscription = await ours.pair(enable_message_ordering=True)
    await ours.publish(topic, "plain")
    await ours.publish(topic, "1", "2", ordering_key="ada")
    assert texts(await ours.pull(subscription, 2)) == ["plain", "1"]

    emulator.broker.expire(now() + WEEK + 1_000_000)
    await ours.publish(topic, "3", ordering_key="ada")

    assert texts(await ours.pull(subscription, 3, within=3)) == ["3"]


async def test_a_second_emulator_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        second = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=240)  # noqa: ASYNC221

    assert second.returncode == 3
    assert f"{tmp_path} is used by another Pub/Sub emulator" in second.stderr
    assert "--data-dir" in second.stderr


def test_a_taken_port_is_named_with_the_program_that_has_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = subprocess.run(command(tmp_path, port), capture_output=True, text=True, timeout=240)

    assert refused.returncode == 10
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert f"lsof -i :{port}" in refused.stderr
    if shutil.which("lsof"):
        assert f"(pid {os.getpid()}) has the port" in refused.stderr


def _overwrite(offset: int, data: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[offset : offset + len(data)] = data
        path.write_bytes(content)

    return damage


def _flip_in_a_message(path: Path) -> None:
    content = path.read_bytes()
    assert content.count(b"precious") == 1
    path.write_bytes(content.replace(b"precious", b"previous"))


def _execute(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)


def _replace_by_another_database(path: Path) -> None:
    path.unlink()
    _execute(path, "CREATE TABLE recipe (name TEXT)")


@pytest.mark.parametrize(
    "damage",
    [
        _overwrite(0, b"not a database"),
        _overwrite(4096, b"\xff" * 4096),
        _flip_in_a_message,
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: os.truncate(path, 0),
        _replace_by_another_database,
        lambda path: _execute(path, "DELETE FROM batch; PRAGMA wal_checkpoint(TRUNCATE)"),
        lambda path: path.rename(f"{path}-wal"),
    ],
    ids=["header", "page", "message", "truncated", "empty", "foreign", "row lost", "only the log"],
)
async def test_a_damaged_folder_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    async with running(tmp_path) as emulator, connected(emulator.target, monkeypatch) as bus:
        topic, _ = await bus.pair()
        await bus.publish(topic, "precious")
    damage(tmp_path / DATABASE)
    damaged = _contents(tmp_path)

    with pytest.raises(DataFolderCorrupt):
        async with running(tmp_path):
            pass

    assert _contents(tmp_path) == damaged


def test_the_command_says_what_to_do_about_a_damaged_folder(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"garbage" * 1000)

    refused = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=240)

    assert refused.returncode == 4
    assert "Restore" in refused.stderr
    assert "Traceback" not in refused.stderr


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith(DATABASE)}

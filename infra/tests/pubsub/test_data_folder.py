"""A data folder has one user, and damage is refused with the folder untouched."""

import socket
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fern.pubsub.errors import DataFolderCorrupt
from fern.pubsub.server import command, running
from fern.pubsub.store import DATABASE

from .parts import Bus


async def test_a_second_emulator_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        second = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=30)  # noqa: ASYNC221

    assert second.returncode == 3
    assert f"{tmp_path} is used by another Pub/Sub emulator" in second.stderr
    assert "--data-dir" in second.stderr


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = subprocess.run(command(tmp_path, port), capture_output=True, text=True, timeout=30)

    assert refused.returncode == 10
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr


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


def _truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _replace_by_another_database(path: Path) -> None:
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipe (name TEXT)")
    other.commit()
    other.close()


def _lose_a_message(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("DELETE FROM batch")
    database.commit()
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def _leave_only_the_log(path: Path) -> None:
    path.rename(path.with_name(f"{DATABASE}-wal"))


@pytest.mark.parametrize(
    "damage",
    [
        _overwrite(0, b"not a database"),
        _overwrite(4096, b"\xff" * 4096),
        _flip_in_a_message,
        _truncate,
        lambda path: path.write_bytes(b""),
        _replace_by_another_database,
        _lose_a_message,
        _leave_only_the_log,
    ],
    ids=["header", "page", "message", "truncated", "empty", "foreign", "row lost", "only the log"],
)
async def test_a_damaged_folder_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    async with running(tmp_path) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.target)
        bus = Bus(emulator.target, google=False)
        topic, _ = await bus.pair()
        await bus.publish(topic, "precious")
        await bus.close()
    damage(tmp_path / DATABASE)
    damaged = _contents(tmp_path)

    with pytest.raises(DataFolderCorrupt):
        async with running(tmp_path):
            pass

    assert _contents(tmp_path) == damaged


def test_the_command_says_what_to_do_about_a_damaged_folder(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"garbage" * 1000)

    refused = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=30)

    assert refused.returncode == 4
    assert "Restore" in refused.stderr
    assert "Traceback" not in refused.stderr


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith(DATABASE)}

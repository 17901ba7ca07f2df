import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from e2e.support.waiting import eventually
from fern.errors import DiskFull, PostgresUnusable
from fern.runtime.postgres import TemporaryServer, ensure_service_databases, initialise, temporary_server
from fern.settings import SERVICES


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryServer]:
    with temporary_server(tmp_path_factory.mktemp("postgres")) as running:
        yield running


async def test_the_server_is_postgresql_18_with_room_for_many_connections(server: TemporaryServer) -> None:
    connection = await asyncpg.connect(server.dsn())

    assert connection.get_server_version().major == 18
    assert int(await connection.fetchval("SHOW max_connections")) >= 200

    await connection.close()


async def test_each_service_opens_its_own_database_and_no_other(server: TemporaryServer) -> None:
    await ensure_service_databases(server.dsn())

    for role in SERVICES:
        for database in SERVICES:
            if role == database:
                own = await asyncpg.connect(server.dsn(database, f"{role}_owner"))
                await own.execute("CREATE TABLE proof (id int); DROP TABLE proof")
                await own.close()
            else:
                for other in (role, f"{role}_owner"):
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await asyncpg.connect(server.dsn(database, other))


async def test_a_wrong_password_is_refused(server: TemporaryServer) -> None:
    await ensure_service_databases(server.dsn())

    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(server.dsn("labour", "labour").replace(":labour@", ":guess@"))


async def test_databases_are_ensured_many_times_at_once_and_keep_their_data(server: TemporaryServer) -> None:
    await ensure_service_databases(server.dsn())
    labour = await asyncpg.connect(server.dsn("labour", "labour_owner"))
    await labour.execute("CREATE TABLE kept (id int)")

    await asyncio.gather(*(ensure_service_databases(server.dsn()) for _ in range(4)))

    assert await labour.fetchval("SELECT count(*) FROM kept") == 0
    await labour.close()


@pytest.mark.system
async def test_committed_rows_survive_a_crash_of_the_server(tmp_path: Path) -> None:
    with temporary_server(tmp_path, fsync=True) as server:
        connection = await asyncpg.connect(server.dsn())
        await connection.execute("CREATE TABLE kept AS SELECT 1 AS id")

        server.kill()
        server.start()

        connection = await asyncpg.connect(server.dsn())
        assert await connection.fetchval("SELECT id FROM kept") == 1
        await connection.close()


@pytest.mark.system
async def test_a_server_whose_port_was_taken_while_it_was_down_starts_once_the_port_is_free(tmp_path: Path) -> None:
    with temporary_server(tmp_path) as server:
        server.stop()
        with socket.create_server((server.host, server.port)):
            starting = asyncio.create_task(asyncio.to_thread(server.start))
            await eventually(lambda: asyncio.to_thread(lambda: "Address already in use" in server.log()))

        await starting

        await (await asyncpg.connect(server.dsn())).close()


async def test_an_unreachable_server_is_named_in_the_error() -> None:
    with pytest.raises(PostgresUnusable, match="refuses the connection"):
        await ensure_service_databases("postgresql://postgres:postgres@127.0.0.1:1/postgres")


def test_a_data_directory_of_another_major_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("16\n")

    with pytest.raises(PostgresUnusable, match="made by PostgreSQL 16") as refusal:
        initialise(tmp_path)

    assert str(refusal.value.command).endswith("fern reset")
    assert [path.name for path in tmp_path.iterdir()] == ["PG_VERSION"]


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fern.runtime.postgres.ROOM_NEEDED", 2**60)

    with pytest.raises(DiskFull, match="MB free"):
        initialise(tmp_path / "data")

    assert os.listdir(tmp_path / "data") == []

"""infra/docker/databases.sh on a real PostgreSQL."""

import asyncio
import os
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from fern.runtime import postgres
from fern.settings import PROJECT_ROOT


@pytest.mark.system
async def test_the_databases_job_gives_each_role_its_own_database_and_a_password_of_its_own(tmp_path: Path) -> None:
    async with _server_with_trusted_superuser(tmp_path) as server:
        # Made by an earlier version, with a guessable password.
        old = await asyncpg.connect(server.dsn())
        await old.execute("CREATE ROLE labour LOGIN PASSWORD 'labour'; ALTER ROLE postgres PASSWORD 'postgres'")
        await old.execute("CREATE DATABASE labour OWNER labour")
        await old.close()

        first = await _run_databases_job(server, tmp_path)
        again = await _run_databases_job(server, tmp_path)
        (tmp_path / "labour/pgpass").unlink()
        lost = await _run_databases_job(server, tmp_path)

        assert again == first
        assert (lost["notification"], lost["labour"] != first["labour"]) == (first["notification"], True)
        for role, other in (("labour", "notification"), ("notification", "labour")):
            owner = await asyncpg.connect(server.dsn(role, f"{role}_owner", lost[f"{role}_owner"]))
            await owner.execute("CREATE TABLE proof ()")
            await owner.close()
            own = await asyncpg.connect(server.dsn(role, role, lost[role]))
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await own.execute("CREATE TABLE another ()")
            await own.close()
            for database in (other, "postgres", "template1"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await asyncpg.connect(server.dsn(database, role, lost[role]))
            with pytest.raises(asyncpg.InvalidPasswordError):
                await asyncpg.connect(server.dsn(role, role, role))
        admin = await asyncpg.connect(server.dsn())
        assert await admin.fetchval("SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'") is None
        await admin.close()


@asynccontextmanager
async def _server_with_trusted_superuser(directory: Path) -> AsyncIterator[postgres.TemporaryServer]:
    """A server as in the container, where the superuser needs no password on the loopback address."""
    with postgres.temporary_server(directory) as server:
        admin = await asyncpg.connect(server.dsn())
        hba = Path(await admin.fetchval("SHOW hba_file"))
        rules = await asyncio.to_thread(hba.read_text)
        await asyncio.to_thread(hba.write_text, f"host all postgres 127.0.0.1/32 trust\n{rules}")
        await admin.execute("SELECT pg_reload_conf()")
        await admin.close()
        yield server


async def _run_databases_job(server: postgres.TemporaryServer, directory: Path) -> dict[str, str]:
    """The passwords by role."""
    roles = ("labour", "labour_owner", "notification", "notification_owner")
    for role in roles:
        (directory / role).mkdir(exist_ok=True)
    environment = {
        "PATH": f"{postgres.binary('psql').parent}:{os.environ['PATH']}",
        "PGPORT": str(server.port),
        "PASSWORD_DIRECTORY": str(directory),
        "PASSWORD_READER": str(os.getuid()),
    }
    script = str(PROJECT_ROOT / "infra/docker/databases.sh")
    await asyncio.to_thread(subprocess.run, ["sh", script], env=environment, check=True, timeout=60)
    files = {role: directory / role / "pgpass" for role in roles}
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files.values())
    lines = {role: file.read_text().strip() for role, file in files.items()}
    assert all(line.startswith(f"*:*:{role.partition('_')[0]}:{role}:") for role, line in lines.items())
    return {role: line.rpartition(":")[2] for role, line in lines.items()}

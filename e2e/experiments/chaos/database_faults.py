"""Faults of the database: restarts, cut and silent connections, read-only, a full disk, locks, and too few connections."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg

from e2e.experiments.chaos.schedule import ScheduledFault
from e2e.support.tcp_proxy import TcpProxy
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging.database import is_transient

ANSWERS_WITHIN = 180.0  # seconds for the database to take a command that ends a fault, before the run fails
DISK_BYTES = 16 * 2**30  # of the file system for PostgreSQL's data, at most; it takes the memory that the data needs
LOCK_SECONDS = 5.0  # to get a lock on a table that is in use

_CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE usename = $1 AND pid <> pg_backend_pid() AND random() < $2
"""


class DatabaseFaults:
    """`disk` is the file system of PostgreSQL's data; None if it is not one of its own. `proxies` are those of the services.

    Each fault returns when it has ended: True if it took effect.
    """

    def __init__(self, server: TemporaryServer, proxies: Mapping[str, TcpProxy], disk: Path | None) -> None:
        self._server, self._proxies, self._disk = server, proxies, disk
        self._starting = asyncio.Lock()  # a server cannot start on a full disk

    async def restart(self, action: ScheduledFault) -> bool:
        async with self._starting:
            await asyncio.to_thread(self._server.stop if action.target == "fast" else self._server.kill)
            await asyncio.sleep(action.seconds)
            await asyncio.to_thread(self._server.start)
        return True

    async def cut(self, action: ScheduledFault) -> bool:
        try:
            async with self._admin() as admin:
                return bool(await admin.fetchval(_CUT, action.target, action.options["share"]))
        except Exception as error:
            return _is_down(error)  # the database is being restarted, which cuts every connection

    async def silence(self, action: ScheduledFault) -> bool:
        """The service's connections stay open and carry nothing any more; new ones work."""
        return self._proxies[action.target].silence() > 0

    async def make_read_only(self, action: ScheduledFault) -> bool:
        """Make new transactions of every connection read-only, as on a server that was demoted to a replica: SQLSTATE 25006."""
        on = "ALTER SYSTEM SET default_transaction_read_only = on"
        return await self._for_a_while(action, on, "ALTER SYSTEM RESET default_transaction_read_only")

    async def limit_connections(self, action: ScheduledFault) -> bool:
        """Cut the role's connections, and allow only a few new ones."""
        role = action.target
        limit, unlimited = (f"ALTER ROLE {role} CONNECTION LIMIT {n}" for n in (action.options["limit"], -1))
        return await self._for_a_while(action, limit, unlimited, cut=role)

    async def lock(self, action: ScheduledFault) -> bool:
        """Lock a table, as a migration that rewrites it does."""
        database, _, table = action.target.partition(".")
        try:
            async with self._admin(database) as admin, admin.transaction():
                await admin.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
                await admin.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                await asyncio.sleep(action.seconds)
        except Exception as error:
            return _is_down(error)
        return True

    async def fill_disk(self, action: ScheduledFault) -> bool:
        """Fill the disk. PostgreSQL may end by itself if it cannot write its log: it is started again when there is room."""
        if self._disk is None:
            return False
        async with self._starting:
            try:
                filled = await asyncio.to_thread(_leave_no_room, self._disk)
                await asyncio.sleep(action.seconds)
            finally:
                _resize(self._disk, DISK_BYTES)
            if self._server.is_dead:
                await asyncio.to_thread(self._server.start)
        return filled

    async def _for_a_while(self, action: ScheduledFault, begin: str, end: str, cut: str = "") -> bool:
        try:
            began = await self._change(begin, cut)
            await asyncio.sleep(action.seconds)
        finally:
            await eventually(lambda: self._change(end), what=f"the database takes {end!r}", seconds=ANSWERS_WITHIN)
        return began

    async def _change(self, statement: str, cut: str = "") -> bool:
        """Run a statement as the superuser. Returns False if the database is down at this moment."""
        try:
            async with self._admin() as admin:
                await admin.execute(statement)
                await admin.execute("SELECT pg_reload_conf()")
                if cut:
                    await admin.fetchval(_CUT, cut, 1.0)
        except Exception as error:
            return _is_down(error)
        return True

    @asynccontextmanager
    async def _admin(self, database: str = "postgres") -> AsyncIterator[asyncpg.Connection]:
        settings = {"application_name": "chaos", "default_transaction_read_only": "off"}
        admin = await asyncpg.connect(self._server.dsn(database), timeout=5, server_settings=settings)
        try:
            yield admin
        finally:
            admin.terminate()


def _is_down(error: Exception) -> bool:
    """Return False (the fault did not take effect) for an error of a database that is down; raise any other error."""
    if not is_transient(error) and not isinstance(error, asyncpg.DiskFullError):
        raise error
    return False


def _leave_no_room(disk: Path) -> bool:
    """Make the file system as small as its content. PostgreSQL goes on writing meanwhile, so that it may take several tries."""
    for _ in range(20):
        state = os.statvfs(disk)
        if _resize(disk, (state.f_blocks - state.f_bfree) * state.f_frsize):
            return True
    return False


def _resize(disk: Path, size: int) -> bool:
    command = ["mount", "-o", f"remount,size={size}", str(disk)]
    return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0


@contextmanager
def own_disk(directory: Path) -> Iterator[Path | None]:
    """A file system in memory, mounted below `directory`. None if this machine does not allow it: it takes root on Linux."""
    disk = directory / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=711", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, timeout=10, check=False).returncode != 0:
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], capture_output=True, timeout=10, check=False)

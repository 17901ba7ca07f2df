"""A PostgreSQL server with a WAL archive, and a copy of it at an earlier point in time."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from e2e.support.ports import free_port_base
from fern.runtime.postgres import TemporaryServer, binary, initialise, run_as, server_account, server_command


class ArchivedServer(TemporaryServer):
    """Copies each finished segment of its write-ahead log into `archive`."""

    def __init__(self, data_dir: Path, port: int, *options: str) -> None:
        super().__init__(data_dir, port, fsync=False)
        self._command = [*server_command(data_dir, port, fsync=False), *options]


@contextmanager
def archived_server() -> Iterator[tuple[ArchivedServer, Path]]:
    """Start a server with an archive. Yields it and the directory of `archive`, which the server's user may enter."""
    with tempfile.TemporaryDirectory(prefix="fern-archive-") as temporary:
        directory = Path(temporary)
        directory.chmod(0o777)
        archive = directory / "archive"
        archive.mkdir()
        archive.chmod(0o777)
        initialise(directory / "data", sync=False)
        copy = f"test ! -f {archive}/%f && cp %p {archive}/%f"
        options = ["archive_mode=on", f"archive_command={copy}", "wal_level=replica", "full_page_writes=on"]
        server = ArchivedServer(directory / "data", free_port_base(), *(x for one in options for x in ("-c", one)))
        server.start()
        try:
            yield server, directory
        finally:
            server.kill()


def base_backup(server: TemporaryServer, to: Path) -> None:
    command = [str(binary("pg_basebackup")), "-d", server.dsn(), "-D", str(to), "--checkpoint=fast", "-X", "none"]
    command += ["--no-sync", "--no-manifest"]
    subprocess.run(command, check=True, capture_output=True, timeout=60, **run_as(server_account()))


@contextmanager
def restored_server(backup: Path, archive: Path, until: datetime) -> Iterator[TemporaryServer]:
    """The databases as they were at `until`, from the base backup and the archive."""
    (backup / "recovery.signal").touch()
    if account := server_account():
        shutil.chown(backup / "recovery.signal", account)
    options = [f"restore_command=cp {archive}/%f %p", f"recovery_target_time={until.isoformat()}"]
    options += ["recovery_target_action=promote", "archive_mode=off", "full_page_writes=on"]
    server = ArchivedServer(backup, free_port_base(), *(x for one in options for x in ("-c", one)))
    server.start()
    try:
        yield server
    finally:
        server.kill()

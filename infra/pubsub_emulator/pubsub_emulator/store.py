"""The data folder: one SQLite database in WAL mode, one process at a time, one thread that writes.

Everything that arrives while a commit is being flushed goes into the next one, so a busy emulator pays for one flush for many
requests and an idle one flushes at once. `synchronous=FULL`: what was answered is on disk, not only with the operating system.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import queue
import sqlite3
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pubsub_emulator import sql
from pubsub_emulator.errors import DataFolderCorrupt, DataFolderInUse
from pubsub_emulator.message import Batch
from pubsub_emulator.sql import Statement
from pubsub_emulator.wire import PublishRequest

log = logging.getLogger(__name__)

_BATCHES: Final = "SELECT id, topic, published_at, request, checksum FROM batch"
DATABASE: Final = "pubsub.sqlite"
_GROUP: Final = 512
"""Requests in one transaction at most, so that the first of them is not kept waiting."""


class Store:
    def __init__(self, data_dir: Path) -> None:
        """Lock and open the folder, and check that it is whole; a new folder gets an empty database."""
        data_dir.mkdir(parents=True, exist_ok=True)
        self.path: Final = data_dir / DATABASE
        self.advice: Final = (
            f"Nothing was changed. Restore {data_dir} from a copy, or rename it to start with an empty one."
        )
        self._lock = _lock(data_dir)
        try:
            self._database = _open(self.path, self.advice)
        except BaseException:
            os.close(self._lock)
            raise
        self._inbox: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="pubsub-writer", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    # ── before the writer starts ──

    def rows(self, query: str) -> list[Any]:
        return self._database.execute(query).fetchall()

    def held_batches(self) -> list[Batch]:
        """The batches of which some subscription still holds a message."""
        held = "EXISTS (SELECT 1 FROM backlog WHERE backlog.message BETWEEN batch.id AND batch.last)"
        return [_batch(row) for row in self._database.execute(f"{_BATCHES} WHERE {held}")]

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer.start()

    # ── while it runs ──

    def submit(self, *statements: Statement) -> asyncio.Future[None]:
        """Queue one all-or-nothing change. The future is done when it is on disk; futures are done in the order of submission."""
        return self._enqueue(statements)

    async def retained(self, topic_id: int, since: int) -> list[Batch]:
        """The batches published to a topic from this time (in microseconds) on, and submitted before this call."""
        query = f"{_BATCHES} WHERE topic = ? AND published_at >= ? ORDER BY id"
        return [_batch(row) for row in await self._enqueue([(query, (topic_id, since))])]

    def _enqueue(self, statements: Sequence[Statement]) -> asyncio.Future[Any]:
        assert self._loop  # noqa: S101
        job = _Job(statements, self._loop.create_future())
        # The caller need not await it: a failure is logged in any case.
        job.future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._inbox.put(job)
        return job.future

    async def close(self) -> None:
        """Finish what was submitted, write the write-ahead log back into the database, and unlock the folder."""
        if self._loop:
            self._inbox.put(None)
            await asyncio.to_thread(self._writer.join)
        self._database.close()
        os.close(self._lock)

    # ── the writer's thread ──

    def _write(self) -> None:
        assert self._loop  # noqa: S101
        stopping = False
        while not stopping:
            jobs = [self._inbox.get()]
            while len(jobs) < _GROUP and not self._inbox.empty():
                jobs.append(self._inbox.get())
            stopping = None in jobs
            group = [job for job in jobs if job]
            failure = self._commit(group)
            self._loop.call_soon_threadsafe(_answer, group, failure)

    def _commit(self, group: list[_Job]) -> Exception | None:
        try:
            with self._database:
                if sum(len(job.statements) for job in group) > 1:  # one alone is a transaction by itself
                    self._database.execute("BEGIN IMMEDIATE")
                for job in group:
                    for text, parameters in job.statements:
                        job.rows = self._database.execute(text, parameters).fetchall()
        except Exception as error:  # every caller of the group gets it, and the thread goes on
            return error
        return None


@dataclass(eq=False, slots=True)
class _Job:
    statements: Sequence[Statement]
    future: asyncio.Future[Any]
    rows: list[Any] = field(default_factory=list)


def _answer(group: list[_Job], failure: Exception | None) -> None:
    if failure:
        log.error("changes could not be stored", extra={"requests": len(group), "error": str(failure)})
    for job in group:
        if job.future.done():  # the caller gave up waiting
            continue
        if failure:
            job.future.set_exception(failure)
        else:
            job.future.set_result(job.rows)


def _batch(row: tuple[int, int, int, bytes, int]) -> Batch:
    batch_id, topic_id, published_at, request, checksum = row
    if zlib.crc32(request) != checksum:
        raise ValueError(f"what was published as message {batch_id} does not match its checksum")
    return Batch(batch_id, topic_id, published_at, PublishRequest.FromString(request))


def _lock(data_dir: Path) -> int:
    path = data_dir / "lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise DataFolderInUse(
            f"{data_dir} is used by another Pub/Sub emulator (process {holder}). "
            "Stop that one, or start this one with another --data-dir."
        ) from None
    os.truncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())
    return handle


def _open(path: Path, advice: str) -> sqlite3.Connection:
    if not path.exists():
        _create(path)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    try:
        problem = _problem(database)
        if problem is None:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute("PRAGMA journal_size_limit = 67108864")
            database.executescript(sql.VERBS)
            return database
    except sqlite3.DatabaseError as error:
        problem = str(error)
    database.close()
    raise DataFolderCorrupt(f"{path} is damaged or not a Pub/Sub emulator's database: {problem}. {advice}")


def _problem(database: sqlite3.Connection) -> str | None:
    application = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if application != sql.APPLICATION_ID:
        return "its application id is not that of a Pub/Sub emulator"
    if version != sql.FORMAT:
        return f"it has format {version}, and this program reads format {sql.FORMAT}"
    result = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    return None if result == "ok" else result


def _create(path: Path) -> None:
    """Create the database under another name first, so that an empty one is always damage and never an interrupted start."""
    if path.with_name(f"{DATABASE}-wal").exists():
        raise DataFolderCorrupt(f"{path} is missing, but its write-ahead log is there. Restore it from a copy.")
    fresh = path.with_name(f"{DATABASE}.new")
    fresh.unlink(missing_ok=True)
    database = sqlite3.connect(fresh, isolation_level=None)
    database.executescript(sql.SCHEMA)
    database.close()
    fresh.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)

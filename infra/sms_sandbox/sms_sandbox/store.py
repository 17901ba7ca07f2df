"""What the sandbox stores, in one SQLite file (WAL) of its data directory.

A message that was answered has been committed, so it survives `kill -9` and a restart. (A commit reaches the operating
system, but is not flushed to the disk: if the machine loses power, the last ones may be lost.)

Single statements commit by themselves; `transaction()` makes several of them one. All calls come from one event loop and
take microseconds, so there is neither a thread nor a pool.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from sms_sandbox.message import LATE, Message

SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    sid TEXT PRIMARY KEY, account_sid TEXT NOT NULL, recipient TEXT NOT NULL, sender TEXT, service_sid TEXT,
    body TEXT NOT NULL, segments INTEGER NOT NULL, direction TEXT NOT NULL, status TEXT NOT NULL,
    created_at REAL NOT NULL, updated_at REAL NOT NULL, callback_url TEXT, step_at REAL, list_lag REAL NOT NULL,
    reordered INTEGER NOT NULL, sent_at REAL, error_code INTEGER
);
CREATE INDEX IF NOT EXISTS message_newest ON message (created_at, sid);
CREATE INDEX IF NOT EXISTS message_to ON message (recipient, created_at, sid);
CREATE INDEX IF NOT EXISTS message_step ON message (step_at) WHERE step_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS callback (
    position INTEGER PRIMARY KEY AUTOINCREMENT, sid TEXT NOT NULL, account_sid TEXT NOT NULL, url TEXT NOT NULL,
    parameters TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, due_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS callback_turn ON callback (sid, position);
CREATE INDEX IF NOT EXISTS callback_due ON callback (due_at);
CREATE TABLE IF NOT EXISTS opt_out (phone TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS account (sid TEXT PRIMARY KEY, token TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fault (
    name TEXT PRIMARY KEY, rate REAL NOT NULL, seed INTEGER NOT NULL, times INTEGER, parameters TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS draw (fault TEXT, phone TEXT, count INTEGER NOT NULL, PRIMARY KEY (fault, phone));
"""

NAMES = [field.name for field in fields(Message)]
COLUMNS = ", ".join(NAMES)
MARKS = ", ".join("?" for _ in NAMES)
VALUES = attrgetter(*NAMES)


@dataclass(frozen=True, slots=True)
class Callback:
    position: int
    sid: str
    account_sid: str
    url: str
    parameters: str
    attempts: int
    due_at: float


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list asks for. Days are ISO dates (UTC); a message that was not sent yet matches none of them."""

    recipient: str | None = None
    sender: str | None = None
    sent_on: str | None = None
    sent_until: str | None = None
    sent_since: str | None = None


class Store:
    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(data_dir / "sms.sqlite3", isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute("PRAGMA busy_timeout = 5000")
        self.db.executescript(SCHEMA)

    def close(self) -> None:
        self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    # Messages

    def save(self, message: Message) -> None:
        self.db.execute(f"INSERT OR REPLACE INTO message ({COLUMNS}) VALUES ({MARKS})", VALUES(message))  # noqa: S608

    def find(self, account_sid: str, sid: str) -> Message | None:
        found = self._messages("account_sid = ? AND sid = ? AND status <> ?", (account_sid, sid, LATE), limit=1)
        return found[0] if found else None

    def listed(
        self, account_sid: str, filters: Filters, *, now: float, after: Message | None, limit: int
    ) -> list[Message]:
        """Newest first, as the API shows them: without what a fault hides. `after` is the last one already seen."""
        conditions: dict[str, object] = {
            "account_sid = ?": account_sid,
            "status <> ?": LATE,
            "created_at + list_lag <= ?": now,
            "recipient = ?": filters.recipient,
            "sender = ?": filters.sender,
            "date(sent_at, 'unixepoch') = ?": filters.sent_on,
            "date(sent_at, 'unixepoch') <= ?": filters.sent_until,
            "date(sent_at, 'unixepoch') >= ?": filters.sent_since,
        }
        wanted = {condition: value for condition, value in conditions.items() if value is not None}
        where, values = [*wanted], [*wanted.values()]
        if after is not None:
            where.append("(created_at, sid) < (?, ?)")
            values += [after.created_at, after.sid]
        return self._messages(" AND ".join(where), values, limit=limit)

    def newest(self, recipient: str | None, limit: int) -> list[Message]:
        """Newest first, all that exist."""
        if recipient is None:
            return self._messages("status <> ?", (LATE,), limit=limit)
        return self._messages("recipient = ? AND status <> ?", (recipient, LATE), limit=limit)

    def count_sent(self) -> int:
        """Texts to phones, replies not counted."""
        return int(self._scalar("SELECT count(*) FROM message WHERE direction <> 'inbound' AND status <> 'late'") or 0)

    def outbound_after(self, sid: str, limit: int) -> list[Message]:
        """Messages to phones in the order of their sids, so that all can be read a page at a time while new ones come."""
        where = "sid > ? AND direction = 'outbound-api' AND status <> ?"
        return self._messages(where, (sid, LATE), limit=limit, order="sid")

    def due(self, now: float, limit: int) -> list[Message]:
        return self._messages("step_at <= ?", (now,), limit=limit, order="step_at")

    def next_step_at(self) -> float | None:
        at: float | None = self._scalar("SELECT min(step_at) FROM message WHERE step_at IS NOT NULL")
        return at

    def clear_messages(self) -> None:
        with self.transaction():
            self.db.execute("DELETE FROM message")
            self.db.execute("DELETE FROM callback")

    def _messages(
        self, where: str, values: Sequence[object], *, limit: int, order: str = "created_at DESC, sid DESC"
    ) -> list[Message]:
        query = f"SELECT {COLUMNS} FROM message WHERE {where} ORDER BY {order} LIMIT ?"  # noqa: S608
        messages = (Message(*row) for row in self.db.execute(query, (*values, limit)))
        return [replace(message, reordered=bool(message.reordered)) for message in messages]

    # Callbacks: those of one message are sent one after the other, in the order in which they were added.

    def add_callback(self, sid: str, account_sid: str, url: str, parameters: str, due_at: float) -> None:
        statement = "INSERT INTO callback (sid, account_sid, url, parameters, due_at) VALUES (?, ?, ?, ?, ?)"
        self.db.execute(statement, (sid, account_sid, url, parameters, due_at))

    def waiting_callbacks(self, limit: int) -> list[Callback]:
        """The first waiting callback of each message, due or not, soonest first."""
        rows = self.db.execute(
            "SELECT * FROM callback AS this WHERE NOT EXISTS "
            "(SELECT 1 FROM callback AS earlier WHERE earlier.sid = this.sid AND earlier.position < this.position) "
            "ORDER BY due_at LIMIT ?",
            (limit,),
        )
        return [Callback(*row) for row in rows]

    def postpone_callback(self, position: int, due_at: float) -> None:
        statement = "UPDATE callback SET attempts = attempts + 1, due_at = ? WHERE position = ?"
        self.db.execute(statement, (due_at, position))

    def remove_callback(self, position: int) -> None:
        self.db.execute("DELETE FROM callback WHERE position = ?", (position,))

    # Phones that said STOP, and the tokens that accounts were last seen with

    def opt_out(self, phone: str) -> None:
        self.db.execute("INSERT OR IGNORE INTO opt_out VALUES (?)", (phone,))

    def opt_in(self, phone: str) -> None:
        self.db.execute("DELETE FROM opt_out WHERE phone = ?", (phone,))

    def has_opted_out(self, phone: str) -> bool:
        return self._scalar("SELECT 1 FROM opt_out WHERE phone = ?", phone) is not None

    def opted_out(self) -> list[str]:
        return [phone for (phone,) in self.db.execute("SELECT phone FROM opt_out ORDER BY phone")]

    def remember_token(self, account_sid: str, token: str) -> None:
        if self.token_of(account_sid) != token:
            self.db.execute("INSERT OR REPLACE INTO account VALUES (?, ?)", (account_sid, token))

    def token_of(self, account_sid: str) -> str | None:
        token: str | None = self._scalar("SELECT token FROM account WHERE sid = ?", account_sid)
        return token

    def _scalar(self, sql: str, *values: object) -> Any:
        row = self.db.execute(sql, values).fetchone()
        return None if row is None else row[0]

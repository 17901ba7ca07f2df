"""What is on disk, and every statement that changes it.

    topic          one row a topic; `config` is the serialised Topic
    subscription   one row a subscription; `topic` outlives the topic, for messages that were published before it was deleted
    batch          one row a publish, its messages `id` to `last`; gone when no subscription holds any of them and its topic
                   retains nothing
    backlog        (message, subscription): not acked yet. An ack deletes the row
    fault          the faults that are on
    secret         the key that signs push tokens

The writer thread gives the interpreter up while SQLite works and has to wait for it after every statement, so a publish and an
ack are one statement each: an insert into a view, whose trigger does all that belongs to it.
"""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pubsub_emulator.message import Batch

APPLICATION_ID: Final = 0x4645524E  # "FERN"
FORMAT: Final = 1
SCHEMA: Final = f"""
PRAGMA auto_vacuum = INCREMENTAL; -- first, because it counts only while the file is empty
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE topic (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, config BLOB NOT NULL) STRICT;
CREATE TABLE subscription (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, topic INTEGER NOT NULL, config BLOB NOT NULL) STRICT;
CREATE TABLE batch (
    id INTEGER PRIMARY KEY, last INTEGER NOT NULL, topic INTEGER NOT NULL, published_at INTEGER NOT NULL,
    request BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT;
CREATE TABLE backlog (
    message INTEGER NOT NULL, subscription INTEGER NOT NULL, failures INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (message, subscription)) STRICT, WITHOUT ROWID;
CREATE TABLE fault (name TEXT PRIMARY KEY, settings TEXT NOT NULL) STRICT;
CREATE TABLE secret (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
"""

_UNHELD: Final = "NOT EXISTS (SELECT 1 FROM backlog WHERE backlog.message BETWEEN batch.id AND batch.last)"
VERBS: Final = f"""
CREATE TEMP VIEW publish AS SELECT batch.*, '' AS owed FROM batch;
CREATE TEMP TRIGGER publish INSTEAD OF INSERT ON publish BEGIN
    -- Both may be there already: a replay of an ordering key brings back what other subscriptions still hold.
    INSERT OR IGNORE INTO batch (id, last, topic, published_at, request, checksum)
        VALUES (NEW.id, NEW.last, NEW.topic, NEW.published_at, NEW.request, NEW.checksum);
    INSERT OR IGNORE INTO backlog (message, subscription)
        SELECT message.value, owed.key FROM json_each(NEW.owed) AS owed, json_each(owed.value) AS message;
END;
CREATE TEMP VIEW ack AS SELECT subscription, '' AS messages, '' AS batches FROM backlog;
CREATE TEMP TRIGGER ack INSTEAD OF INSERT ON ack BEGIN
    DELETE FROM backlog
        WHERE subscription = NEW.subscription AND message IN (SELECT value FROM json_each(NEW.messages));
    DELETE FROM batch WHERE id IN (SELECT value FROM json_each(NEW.batches)) AND {_UNHELD};
END;
"""  # noqa: S608

Statement = tuple[str, Sequence[Any]]

# ── publish ──


def publish(batch: Batch, encoded: bytes, owed: Mapping[int, Sequence[int]]) -> Statement:
    """`owed` are the messages that each subscription must get, by its id."""
    return (
        "INSERT INTO publish (id, last, topic, published_at, request, checksum, owed) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (batch.id, batch.ids[-1], batch.topic_id, batch.published_at, encoded, zlib.crc32(encoded), json.dumps(owed)),
    )


def owe(subscription_id: int, message_ids: Sequence[int]) -> Statement:
    """The subscription must get these messages, which are there already."""
    statement = "INSERT OR IGNORE INTO backlog (message, subscription) SELECT value, ? FROM json_each(?)"
    return statement, (subscription_id, json.dumps(message_ids))


# ── settle ──


def ack(subscription_id: int, message_ids: Sequence[int], reclaimable: Iterable[int]) -> Statement:
    """`reclaimable` are the batches to delete if no subscription holds any of their messages."""
    statement = "INSERT INTO ack (subscription, messages, batches) VALUES (?, ?, ?)"
    return statement, (subscription_id, json.dumps(message_ids), json.dumps(list(reclaimable)))


def remember_failures(subscription_id: int, message_id: int, failures: int) -> Statement:
    statement = "UPDATE backlog SET failures = ? WHERE message = ? AND subscription = ?"
    return statement, (failures, message_id, subscription_id)


# ── housekeeping ──


def owe_nothing(subscription_id: int) -> Statement:
    return "DELETE FROM backlog WHERE subscription = ?", (subscription_id,)


def reclaim_topic(topic_id: int, before: int) -> Statement:
    """Delete the batches that no subscription holds and that were published before this time (in microseconds)."""
    return f"DELETE FROM batch WHERE topic = ? AND published_at < ? AND {_UNHELD}", (topic_id, before)  # noqa: S608


SHRINK: Final[Statement] = ("PRAGMA incremental_vacuum(2000)", ())

# ── topics and subscriptions ──


def put_topic(topic_id: int, name: str, config: bytes) -> Statement:
    return (
        "INSERT INTO topic (id, name, config) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET config = excluded.config",
        (topic_id, name, config),
    )


def delete_topic(topic_id: int) -> Statement:
    return "DELETE FROM topic WHERE id = ?", (topic_id,)


def put_subscription(subscription_id: int, name: str, topic_id: int, config: bytes) -> Statement:
    return (
        "INSERT INTO subscription (id, name, topic, config) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET config = excluded.config",
        (subscription_id, name, topic_id, config),
    )


def delete_subscription(subscription_id: int) -> Statement:
    return "DELETE FROM subscription WHERE id = ?", (subscription_id,)


# ── faults and secrets ──


def put_faults(settings: dict[str, dict[str, Any]]) -> list[Statement]:
    return [
        ("DELETE FROM fault", ()),
        ("INSERT INTO fault (name, settings) SELECT key, value FROM json_each(?)", (json.dumps(settings),)),
    ]


def put_secret(name: str, value: bytes) -> Statement:
    return "INSERT INTO secret (name, value) VALUES (?, ?)", (name, value)

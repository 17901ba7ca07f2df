"""Answers as they are stored for idempotency keys: without the names and phone numbers of subscribers.

A subscriber's name and number never change, so they are read again when an answer is replayed, and it has the same bytes as the
first one. Everything that may have changed since, such as a state or a role, is stored.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import asyncpg
import msgspec

from servicekit.idempotency import Answer

_KNOWN_BY_ID = ("name", "phone")
_SUBSCRIBERS = "SELECT id::text, name, phone FROM subscriber WHERE id = ANY($1::uuid[])"


def to_store(answer: Answer) -> Answer:
    if b'"phone":' not in answer.body:  # a caller's text cannot contain it: its quotation marks are escaped
        return answer
    data = msgspec.json.decode(answer.body)
    for one in _subscribers(data):
        one.update(dict.fromkeys(_KNOWN_BY_ID))
    return replace(answer, body=msgspec.json.encode(data))


async def from_store(connection: asyncpg.Connection, answer: Answer) -> Answer:
    if b'"phone":null' not in answer.body:
        return answer
    data = msgspec.json.decode(answer.body)
    rows = await connection.fetch(_SUBSCRIBERS, [one["id"] for one in _subscribers(data)])
    known = {row["id"]: row for row in rows}
    for one in _subscribers(data):
        one.update({name: known[one["id"]][name] if one["id"] in known else "" for name in _KNOWN_BY_ID})
    return replace(answer, body=msgspec.json.encode(data))


def _subscribers(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The answer is a subscriber, or a labour with its subscribers."""
    return iter([data] if "phone" in data else data.get("subscribers", []))

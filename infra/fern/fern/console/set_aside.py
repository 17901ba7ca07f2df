"""Lists by reason what an operator has to decide: dead letters on the bus, and parked rows in the outboxes.

A dead letter is redriven, which publishes it to its topic again, or discarded, which its consumer's database records. A parked
row is retried or discarded. Both are what `fern dlq` and `fern outbox` do.
"""

from typing import Any, Literal

import msgspec

from fern.client import AsyncClient
from fern.console.actions import ActionResult
from fern.dead_letters import MOST, DeadLetter, Look, discard_letters, open_bus, redrive_letters
from fern.settings import SERVICES

DeadVerb = Literal["redrive", "discard"]
ParkedVerb = Literal["retry", "discard"]
SHOWN = 20  # messages of a group, with their details


class DeadGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    consumer: str
    reason: str

    def has(self, letter: DeadLetter) -> bool:
        return (letter.topic, letter.consumer, letter.reason) == (self.topic, self.consumer, self.reason)


class ParkedGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    service: Literal["labour", "notification"]
    type: str
    reason: str | None


class SetAside:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def dead(self) -> tuple[list[DeadLetter], int | None]:
        """The dead letters, and the limit if there may be more. Takes 1.5 s, after which the bus counts as empty."""
        letters = list[DeadLetter]()
        async with open_bus() as bus, Look(bus) as look:
            async for batch in look.batches():
                letters += batch
            return letters, MOST if look.is_full else None

    async def look_at_dead(self, group: DeadGroup) -> dict[str, Any]:
        async with open_bus() as bus, Look(bus, [group.topic]) as look:
            letters = [letter async for batch in look.batches() for letter in batch if group.has(letter)]
        return {"items": [letter.details() for letter in letters[:SHOWN]], "total": len(letters)}

    async def change_dead(self, verb: DeadVerb, group: DeadGroup) -> ActionResult:
        async with open_bus() as bus, Look(bus, [group.topic]) as look:
            letters = [letter async for batch in look.batches() for letter in batch if group.has(letter)]
            if not letters:
                return ActionResult(
                    False,
                    "These dead letters were not found: they were redriven or discarded, or another look holds them.",
                )
            if verb == "discard":
                discarded = [letter async for letter in discard_letters(look, letters)]
                return ActionResult(True, f"{_messages(len(discarded))} discarded, and will never have an effect.")
            done = await redrive_letters(bus, look, letters)
            left = f" The bus rejected {len(letters) - done}, which stay here." if done < len(letters) else ""
            return ActionResult(done > 0, f"{_messages(done)} published to {group.topic} again.{left}")

    async def parked(self) -> dict[str, Any]:
        groups = []
        for service in SERVICES:
            found = await self._client.get(service, "/operations/outbox/parked")
            groups += [{"service": service, **group} for group in found["items"]]
        return {"groups": groups, "more": None}

    async def look_at_parked(self, group: ParkedGroup) -> dict[str, Any]:
        rows = await self._client.get(group.service, "/operations/outbox", parked="true", limit=1000)
        wanted = [row for row in rows["items"] if (row["type"], row["last_error"]) == (group.type, group.reason)]
        groups = (await self._client.get(group.service, "/operations/outbox/parked"))["items"]
        total = sum(one["count"] for one in groups if (one["type"], one["reason"]) == (group.type, group.reason))
        names = ("event_id", "type", "ordering_key", "attempts", "parked_at", "last_error")
        return {"items": [{name: row[name] for name in names} for row in wanted[:SHOWN]], "total": total}

    async def change_parked(self, verb: ParkedVerb, group: ParkedGroup) -> ActionResult:
        """Retry or discard the rows of the group, one batch per call, until none is left."""
        changed, after = 0, 0
        path = f"/operations/outbox/parked/{verb}"
        while after is not None:
            body = {"type": group.type, "reason": group.reason, "after": after}
            batch = (await self._client.send(group.service, "POST", path, json=body)).json()
            changed, after = changed + len(batch["items"]), batch["next"]
        if not changed:
            return ActionResult(False, "These rows are not parked any more.")
        words = "will be tried again" if verb == "retry" else "are discarded: they are never published"
        return ActionResult(True, f"{changed} parked {'row' if changed == 1 else 'rows'} {words}.")


def _messages(count: int) -> str:
    return f"{count} {'message is' if count == 1 else 'messages are'}"

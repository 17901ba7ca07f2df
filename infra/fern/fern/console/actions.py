"""What the console's buttons do, each with a result in words."""

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import msgspec

from fern.client import APIS, FAULT_TARGETS, AsyncClient, RequestRefused
from fern.errors import FernError, NotRunning
from fern.runtime.system import kill_process
from fern.settings import MOTHER, SERVICES, Settings
from servicekit.problems import Problem

PATIENCE = 30.0  # seconds for which a tap is repeated
MOST_RETRIED = 1000  # parked rows of each service
LABOURS = "/api/v1/labours"


class ActionResult(msgspec.Struct, frozen=True):
    """`ok` is False if the action was refused."""

    ok: bool
    words: str


class Actions:
    def __init__(self, settings: Settings, client: AsyncClient) -> None:
        self._settings, self._client = settings, client

    async def act(self, verb: str, given: dict[str, Any]) -> list[ActionResult]:
        """A tap by the mother. It has an idempotency key, so it is repeated until the API answers."""
        key = str(uuid4())
        if verb == "plan":
            plan = {"mother_name": given.get("name", "")}
            return [await self._tap("POST", LABOURS, plan, key, lambda one: f"{one['mother_name']} plans her labour.")]
        labour = await self._newest_labour()
        here = f"{LABOURS}/{labour['id']}"
        people = len([person for person in labour["subscribers"] if person["state"] == "approved"])
        told = f"{people} on the list, each to be told once." if people else "The list is still empty."
        match verb:
            case "subscribe":
                person = {"name": given.get("name", ""), "phone": given.get("phone", "")}
                path = f"{here}/subscribers"
                done = self._tap("POST", path, person, key, lambda one: f"{one['name']} is on the list.")
            case "begin":
                done = self._tap("PUT", f"{here}/begin", None, key, lambda _: f"The labour has begun. {told}")
            case "announce":
                update = {"kind": "announcement", "text": given.get("text", "")}
                done = self._tap("POST", f"{here}/updates", update, key, lambda _: f"Announced. {told}")
            case "contraction":
                done = self._contraction(f"{here}/contractions", key)
            case "complete":
                done = self._tap("PUT", f"{here}/complete", None, key, lambda _: f"The baby is here! {told}")
            case "complete-twice":
                return await self._complete_twice(f"{here}/complete", f"console-{labour['id']}", told)
            case _:
                raise Problem(404, "no-such-verb", f"There is no button {verb}.")
        return [await done]

    async def _contraction(self, path: str, key: str) -> ActionResult:
        contractions = (await self._send("GET", path)).json()["items"]
        running = next((one for one in contractions if one["ended_at"] is None), None)
        if running is None:
            return await self._tap("POST", path, {}, key, lambda _: "A contraction starts.")
        path = f"{path}/{running['id']}/end"
        return await self._tap("PUT", path, {"intensity": 6}, key, lambda _: "The contraction is over.")

    async def _complete_twice(self, path: str, key: str, told: str) -> list[ActionResult]:
        """The key is the same whenever this button is pressed for a labour."""
        first = await self._tap("PUT", path, None, key, lambda _: f"First tap: the baby is here! {told}")
        if not first.ok:
            return [first]
        answer = await self._send("PUT", path, key=key)
        if answer.headers.get("idempotency-replayed") == "true":
            words = "Second tap, same key: the same answer, replayed. No one is told twice."
            return [first, ActionResult(True, words)]
        words = f"Second tap, same key: a new answer ({answer.status_code}), which must not be."
        return [first, ActionResult(False, words)]

    async def _newest_labour(self) -> dict[str, Any]:
        labours: list[dict[str, Any]] = (await self._send("GET", LABOURS, params={"limit": 1})).json()["items"]
        if not labours:
            raise Problem(409, "no-labour", "There is no labour yet; plan one first.")
        return labours[0]

    async def _tap(
        self, method: str, path: str, body: Any, key: str, words: Callable[[dict[str, Any]], str]
    ) -> ActionResult:
        began = time.monotonic()
        try:
            answer = await self._send(method, path, key=key, json=body)
        except RequestRefused as refused:
            return ActionResult(False, f"Refused: {refused.message}")
        again = " The same answer as before, replayed." if answer.headers.get("idempotency-replayed") else ""
        waited = time.monotonic() - began
        late = f" (It took {waited:.0f} s of trying with the same key.)" if waited > 1 else ""
        return ActionResult(True, words(answer.json()) + again + late)

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return await self._client.send("labour", method, path, user=MOTHER, patience=PATIENCE, **options)
        except NotRunning as error:
            tried = f"Tried for {PATIENCE:.0f} s, and it is safe to try again."
            raise Problem(503, "no-answer", f"{error.message} {tried}") from None

    async def kill(self, process: str) -> ActionResult:
        try:
            words = await asyncio.to_thread(kill_process, self._settings, process)
        except FernError as error:
            return ActionResult(False, error.message)
        return ActionResult(True, words[0].upper() + words[1:] + ".")

    async def set_fault(self, target: str, name: str, rate: float) -> ActionResult:
        """A rate of 0 switches it off."""
        if target not in FAULT_TARGETS:
            raise Problem(404, "no-such-target", f"There is no {target}; there are {', '.join(FAULT_TARGETS)}.")
        body = {"json": {"rate": rate}} if rate else {}
        words = f"{name} is on, {rate:.0%} of the time." if rate else f"{name} is off."
        return await self._try(words, target, "PUT" if rate else "DELETE", f"/faults/{name}", **body)

    async def clear_faults(self) -> list[ActionResult]:
        """Switch every fault off and retry every parked row. What was killed is restarted by its supervisor."""
        results = []
        for target, name in zip(FAULT_TARGETS, ("the bus", "the phones"), strict=True):
            results.append(await self._try(f"Every fault of {name} is off.", target, "DELETE", "/faults"))
        for service in SERVICES:
            results += await self._retry_parked(service)
        return results

    async def _retry_parked(self, service: str) -> list[ActionResult]:
        try:
            parked = await self._client.get(service, "/operations/outbox", parked="true", limit=MOST_RETRIED)
            for row in (rows := parked["items"]):
                await self._client.send(service, "POST", f"/operations/outbox/{row['event_id']}/retry")
        except FernError as error:
            return [ActionResult(False, f"{error.message} Press the button again later.")]
        words = f"{len(rows)} parked in the outbox of {APIS[service]}: tried again."
        return [ActionResult(True, words)] if rows else []

    async def _try(self, words: str, *request: Any, **options: Any) -> ActionResult:
        try:
            await self._client.send(*request, **options)
        except FernError as error:
            return ActionResult(False, error.message if isinstance(error, NotRunning) else f"Refused: {error.message}")
        return ActionResult(True, words)

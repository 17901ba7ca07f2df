"""What the console's buttons do, each with a result in words."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import msgspec

from fern.client import FAULT_TARGETS, AsyncClient, RequestRefused
from fern.errors import FernError, NotRunning
from fern.overrides import Overrides
from fern.runtime.system import change, disarm_crashes, processes_now, release_process
from fern.settings import MOTHER, Settings
from servicekit.http.problems import Problem

PATIENCE = 30.0  # seconds for which a request is repeated
LABOURS = "/api/v1/labours"


class ActionResult(msgspec.Struct, frozen=True):
    """`ok` is False if the action was refused; `field` is then the field that was wrong, if it was one."""

    ok: bool
    words: str
    field: str | None = None


class Actions:
    def __init__(self, settings: Settings, client: AsyncClient) -> None:
        self._settings, self._client = settings, client

    async def act(self, verb: str, given: dict[str, Any]) -> list[ActionResult]:
        """Send a request of the mother. It has an idempotency key, so it is repeated until the API answers."""
        key = str(uuid4())
        if verb == "plan":
            plan = {"mother_name": given.get("mother_name", "")}
            return [await self._tap("POST", LABOURS, plan, key, lambda one: f"{one['mother_name']} plans her labour.")]
        labour = await self.newest_labour()
        if labour is None:
            raise Problem(409, "no-labour", "There is no labour yet; plan one first.")
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
            words = "Second tap, same key: the same answer, replayed. No person is told twice."
            return [first, ActionResult(True, words)]
        words = f"Second tap, same key: a new answer ({answer.status_code}), which breaks promise 8."
        return [first, ActionResult(False, words)]

    async def newest_labour(self) -> dict[str, Any] | None:
        labours: list[dict[str, Any]] = (await self._send("GET", LABOURS, params={"limit": 1})).json()["items"]
        return labours[0] if labours else None

    async def _tap(
        self, method: str, path: str, body: Any, key: str, words: Callable[[dict[str, Any]], str]
    ) -> ActionResult:
        began = time.monotonic()
        try:
            answer = await self._send(method, path, key=key, json=body)
        except RequestRefused as refused:
            return _refusal(refused)
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

    async def change_process(self, how: Callable[[Settings, str], str], process: str) -> ActionResult:
        """`how` is `kill_process`, `hold_process`, `release_process` or the like: it returns what it did, or raises."""
        try:
            words = await asyncio.to_thread(how, self._settings, process)
        except FernError as error:
            return ActionResult(False, error.message)
        sentence = words if words.startswith(process) else words[0].upper() + words[1:]
        return ActionResult(True, f"{sentence}.")

    async def set_fault(self, target: str, name: str, wanted: dict[str, Any]) -> ActionResult:
        """`wanted` has the rate and the fault's own settings. A rate of 0 switches it off."""
        if target not in FAULT_TARGETS:
            raise Problem(404, "no-such-target", f"There is no {target}; there are {', '.join(FAULT_TARGETS)}.")
        if not wanted.get("rate"):
            return await self._try(f"{name} is off.", target, "DELETE", f"/faults/{name}")
        settings = "".join(f", {key} {value}" for key, value in wanted.items() if key != "rate")
        words = f"{name} is on, {wanted['rate']:.0%} of the time{settings}."
        return await self._try(words, target, "PUT", f"/faults/{name}", json=wanted)

    async def set_consent(self, mode: str) -> ActionResult:
        """Change the mode of consent, as `fern consent` does. The processes that read it are started again."""
        words = {
            "required": "Consent is required: a person is asked first, and gets nothing else until they answer YES.",
            "assumed": "Consent is assumed: every person counts as having agreed.",
        }

        def keep(settings: Settings, wanted: str) -> str:
            change(settings, replace(Overrides.load(settings), consent=wanted))
            return words[wanted].removesuffix(".")

        return await self.change_process(keep, mode)

    async def reply(self, phone: str, body: str) -> ActionResult:
        """Send a reply from a phone of the sandbox."""
        reply = {"from": phone, "body": body}
        return await self._try(f"{phone} answers {body}.", "sms", "POST", "/sandbox/inbound", json=reply)

    async def clear_faults(self) -> list[ActionResult]:
        """Switch every fault off, and release every process that is held down. Parked rows are retried after a preview only."""
        results = []
        for target, name in zip(FAULT_TARGETS, ("the bus", "the provider"), strict=True):
            results.append(await self._try(f"Every fault of {name} is off.", target, "DELETE", "/faults"))
        await asyncio.to_thread(disarm_crashes, self._settings)
        for row in await asyncio.to_thread(processes_now, self._settings):
            if row.is_held:
                results.append(await self.change_process(release_process, row.process))
        return results

    async def _try(self, words: str, *request: Any, **options: Any) -> ActionResult:
        try:
            await self._client.send(*request, **options)
        except FernError as error:
            return _refusal(error)
        return ActionResult(True, words)


def _refusal(error: FernError) -> ActionResult:
    if not isinstance(error, RequestRefused):
        return ActionResult(False, error.message)
    fields = error.problem.get("fields") or [{"field": None}]
    return ActionResult(False, f"Refused: {error.message}", fields[0]["field"])

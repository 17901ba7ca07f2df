"""What the console's buttons do, each answered in words a person can read."""

import asyncio
import time
from typing import Any, Final
from uuid import uuid4

import httpx
import msgspec

from fern.commands.fault import TARGETS
from fern.console.watch import MOTHER, OPERATOR
from fern.errors import FernError
from fern.runtime.system import kill_process
from fern.settings import Settings
from fern.tokens import make_token
from servicekit.problems import Problem

TRY_FOR, TRY_AGAIN_AFTER = 30.0, 0.25
MOST_RETRIED: Final = 1000


class Said(msgspec.Struct, frozen=True):
    """`ok` is false where somebody refused; that is an answer too."""

    ok: bool
    words: str


class Hands:
    def __init__(self, settings: Settings, http: httpx.AsyncClient) -> None:
        self._settings = settings
        self._http = http

    async def act(self, verb: str, given: dict[str, Any]) -> list[Said]:
        """A tap of the mother's. Every tap has an idempotency key, so it can be repeated until somebody answers."""
        key = str(uuid4())
        if verb == "plan":
            plan = {"mother_name": given.get("name", "")}
            return [await self._tap("POST", "", plan, key, lambda labour: f"{labour['mother_name']} plans her labour.")]
        here, labour = await self._labour()
        people = len([person for person in labour["subscribers"] if person["state"] == "approved"])
        told = "Nobody is on the list yet." if not people else f"{people} on the list, each to be told once."
        match verb:
            case "subscribe":
                person = {"name": given.get("name", ""), "phone": given.get("phone", "")}
                tap = await self._tap(
                    "POST", f"{here}/subscribers", person, key, lambda one: f"{one['name']} is on the list."
                )
            case "begin":
                tap = await self._tap("PUT", f"{here}/begin", None, key, lambda _: f"The labour has begun. {told}")
            case "announce":
                update = {"kind": "announcement", "text": given.get("text", "")}
                tap = await self._tap("POST", f"{here}/updates", update, key, lambda _: f"Announced. {told}")
            case "contraction":
                return [await self._contraction(here, key)]
            case "complete":
                tap = await self._tap("PUT", f"{here}/complete", None, key, lambda _: f"The baby is here! {told}")
            case "complete-twice":
                return await self._complete_twice(here, labour["id"], told)
            case _:
                raise Problem(404, "no-such-verb", f"There is no button {verb}.")
        return [tap]

    async def _contraction(self, here: str, key: str) -> Said:
        contractions = (await self._send("GET", f"{here}/contractions")).json()["items"]
        running = next((one for one in contractions if one["ended_at"] is None), None)
        if running is None:
            return await self._tap("POST", f"{here}/contractions", {}, key, lambda _: "A contraction starts.")
        path = f"{here}/contractions/{running['id']}/end"
        return await self._tap("PUT", path, {"intensity": 6}, key, lambda _: "The contraction is over.")

    async def _complete_twice(self, here: str, labour_id: str, told: str) -> list[Said]:
        """The same key whenever this is pressed for a labour, so that it is one tap however often it is sent."""
        key = f"console-{labour_id}"
        first = await self._tap("PUT", f"{here}/complete", None, key, lambda _: f"First tap: the baby is here! {told}")
        if not first.ok:
            return [first]
        answer = await self._send("PUT", f"{here}/complete", headers={"Idempotency-Key": key})
        if answer.headers.get("idempotency-replayed") == "true":
            return [first, Said(True, "Second tap, same key: the same answer, replayed. Nobody is told twice.")]
        return [first, Said(False, f"Second tap, same key: a new answer ({answer.status_code}), which must not be.")]

    async def _labour(self) -> tuple[str, dict[str, Any]]:
        labours = (await self._send("GET", "", params={"limit": 1})).json()["items"]
        if not labours:
            raise Problem(409, "no-labour", "There is no labour yet; plan one first.")
        return f"/{labours[0]['id']}", labours[0]

    async def _tap(self, method: str, path: str, body: Any, key: str, words: Any) -> Said:
        began, headers = time.monotonic(), {"Idempotency-Key": key}
        answer = await self._send(method, path, headers=headers, **({} if body is None else {"json": body}))
        if not answer.is_success:
            return Said(False, f"Refused: {_detail(answer)}")
        again = " The same answer as before, replayed." if answer.headers.get("idempotency-replayed") else ""
        waited = time.monotonic() - began
        late = f" (It took {waited:.0f} s of trying with the same key.)" if waited > 1 else ""
        return Said(True, words(answer.json()) + again + late)

    async def _send(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        """Again and again while nobody answers: with its key a request has one effect, however often it arrives."""
        url = self._settings.url("labour-api") + "/api/v1/labours" + path
        headers = {"Authorization": f"Bearer {make_token(MOTHER)}", **(headers or {})}
        deadline = time.monotonic() + TRY_FOR
        while True:
            try:
                answer = await self._http.request(method, url, headers=headers, **more)
                in_flight = answer.status_code == 409 and "retry-after" in answer.headers  # an earlier try of ours
                if answer.status_code < 500 and not in_flight:
                    return answer
                trouble = _detail(answer)
            except httpx.TransportError:
                trouble = "labour-api does not answer."
            if time.monotonic() > deadline:
                tried = f"Tried for {TRY_FOR:.0f} s, and it is safe to try again."
                raise Problem(503, "no-answer", f"{trouble} {tried}")
            await asyncio.sleep(TRY_AGAIN_AFTER)

    async def kill(self, process: str) -> Said:
        try:
            words = await asyncio.to_thread(kill_process, self._settings, process)
        except FernError as error:
            return Said(False, error.message)
        return Said(True, words[0].upper() + words[1:] + ".")

    async def set_fault(self, target: str, name: str, rate: float) -> Said:
        """A rate of 0 switches it off."""
        if target not in TARGETS:
            raise Problem(404, "no-such-target", f"There is no {target}; there are {', '.join(TARGETS)}.")
        body = {"json": {"rate": rate}} if rate else {}
        answer = await self._breakable(target, "PUT" if rate else "DELETE", f"/{name}", **body)
        if not answer.is_success:
            return Said(False, f"Refused: {_detail(answer)}")
        return Said(True, f"{name} is on, {rate:.0%} of the time." if rate else f"{name} is off.")

    async def mend(self) -> list[Said]:
        """Every fault off, and everything that is parked gets another try. What was killed comes back by itself."""
        said = []
        for target in TARGETS:
            try:
                await self._breakable(target, "DELETE", "")
                said.append(Said(True, f"Every fault of {'the bus' if target == 'bus' else 'the phones'} is off."))
            except Problem as problem:
                said.append(Said(False, problem.detail))
        for api in ("labour-api", "notification-api"):
            outbox = f"{self._settings.url(api)}/operations/outbox"
            try:
                parked = await self._http.get(
                    outbox, params={"parked": "true", "limit": MOST_RETRIED}, headers=OPERATOR
                )
                for row in (rows := parked.json()["items"]):
                    await self._http.post(f"{outbox}/{row['event_id']}/retry", headers=OPERATOR)
            except httpx.TransportError:
                said.append(Said(False, f"{api} does not answer; mend again when it does."))
            else:
                said += [Said(True, f"{len(rows)} parked in the outbox of {api}: tried again.")] if rows else []
        return said

    async def _breakable(self, target: str, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return await self._http.request(method, f"{self._settings.url(TARGETS[target])}/faults{path}", **more)
        except httpx.TransportError:
            raise Problem(503, "no-answer", f"{TARGETS[target]} does not answer.") from None


def _detail(answer: httpx.Response) -> str:
    if "json" in answer.headers.get("content-type", ""):
        return str(answer.json().get("detail", answer.status_code))
    return f"The answer was {answer.status_code}."

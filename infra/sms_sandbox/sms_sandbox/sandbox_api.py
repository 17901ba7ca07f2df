"""The sandbox's own routes, for the page, for people and for tests. Errors are problem+json."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from litestar import Controller, Request, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import File, Stream

from sms_sandbox.errors import SandboxProblem
from sms_sandbox.faults import BadFault, UnknownFault
from sms_sandbox.sandbox import Sandbox
from sms_sandbox.validation import BadReply, reply_from_phone

PAGE = Path(__file__).parent / "page"
PAGE_FILES = {"phones.css": "text/css", "phones.js": "text/javascript", "fern.svg": "image/svg+xml"}
# Texts come from others, so the page may load and run nothing but its own files.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-cache",
}


@get("/", include_in_schema=False)
async def show_phones() -> File:
    return File(PAGE / "index.html", media_type="text/html", content_disposition_type="inline", headers=PAGE_HEADERS)


@get("/page/{name:str}", include_in_schema=False)
async def page_file(name: FromPath[str]) -> File:
    if name not in PAGE_FILES:
        raise SandboxProblem(404, "not-found", f"The page has no file {name}.")
    return File(PAGE / name, media_type=PAGE_FILES[name], content_disposition_type="inline", headers=PAGE_HEADERS)


@get("/health")
async def health(sandbox: NamedDependency[Sandbox]) -> dict[str, object]:
    return {"status": "ok", "faults": sorted(sandbox.faults.active())}


class Reply(msgspec.Struct, forbid_unknown_fields=True):
    phone: str = msgspec.field(name="from")
    body: str


class Phones(Controller):
    path = "/sandbox"

    @get("/messages")
    async def list_messages(
        self,
        sandbox: NamedDependency[Sandbox],
        to: FromQuery[str | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
    ) -> dict[str, object]:
        """Every message, newest first, also those that faults hide from Twilio's API; `total` counts the ones to phones."""
        items = [message.as_seen() for message in sandbox.store.newest(to, limit)]
        return {"items": items, "total": sandbox.store.count_sent()}

    @get("/messages/by-sid")
    async def list_by_sid(
        self,
        sandbox: NamedDependency[Sandbox],
        after: FromQuery[str] = "",
        limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 1000,
    ) -> dict[str, object]:
        """Every message to a phone, in pages by sid, with its sid, number and body only: for counting."""
        page = sandbox.store.outbound_after(after, limit)
        return {"items": [{"sid": text.sid, "to": text.recipient, "body": text.body} for text in page]}

    @delete("/messages")
    async def clear_messages(self, sandbox: NamedDependency[Sandbox]) -> None:
        sandbox.store.clear_messages()
        sandbox.feed.publish("cleared")

    @get("/opt-outs")
    async def list_opt_outs(self, sandbox: NamedDependency[Sandbox]) -> dict[str, object]:
        return {"items": sandbox.store.opted_out()}

    @post("/inbound")
    async def reply(self, sandbox: NamedDependency[Sandbox], data: JSONBody[Reply]) -> dict[str, object]:
        try:
            return reply_from_phone(sandbox, data.phone, data.body).as_seen()
        except BadReply as error:
            raise SandboxProblem(400, "invalid-request", str(error)) from None

    @get("/events")
    async def events(self, sandbox: NamedDependency[Sandbox]) -> Stream:
        """Server-sent events: ready, message, opt-outs, faults, cleared."""
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return Stream(sandbox.feed.listen(), media_type="text/event-stream", headers=headers)


def answer_bad_fault(request: Request[Any, Any, Any], error: BadFault) -> Response[Any]:
    problem = (404, "unknown-fault") if isinstance(error, UnknownFault) else (400, "invalid-fault")
    return SandboxProblem(*problem, str(error)).to_response(request)


class FaultSwitches(Controller):
    path = "/faults"
    exception_handlers = {BadFault: answer_bad_fault}  # noqa: RUF012  (Litestar's way)

    @get()
    async def list_faults(self, sandbox: NamedDependency[Sandbox]) -> dict[str, object]:
        return {"items": sandbox.faults.shown()}

    @put("/{name:str}")
    async def set_fault(
        self, request: Request[Any, Any, Any], sandbox: NamedDependency[Sandbox], name: FromPath[str]
    ) -> dict[str, object]:
        try:
            wanted = msgspec.json.decode(await request.body() or b"{}")
        except msgspec.DecodeError as error:
            raise BadFault(f"the body is not JSON: {error}") from None
        sandbox.faults.set(name, wanted)
        return next(item for item in sandbox.faults.shown() if item["name"] == name)

    @delete("/{name:str}")
    async def clear_fault(self, sandbox: NamedDependency[Sandbox], name: FromPath[str]) -> None:
        sandbox.faults.clear(name)

    @delete()
    async def clear_faults(self, sandbox: NamedDependency[Sandbox]) -> None:
        sandbox.faults.clear()

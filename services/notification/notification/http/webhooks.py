"""The provider's webhooks: delivery statuses and replies. A request without a valid signature changes nothing."""

from typing import Any
from uuid import UUID

from litestar import Controller, Request, Response, post
from litestar.di import NamedDependency
from litestar.params import FromQuery
from structlog import get_logger
from twilio.request_validator import RequestValidator

from messaging.unit_of_work import UnitsOfWork
from notification.delivery import callbacks
from notification.settings import Settings
from servicekit.problems import Problem

log = get_logger()


class TwilioController(Controller):
    path = "/webhooks/twilio"
    tags = ("webhooks",)

    @post("/status", status_code=204, summary="Record the delivery status of a message. Only Twilio may.")
    async def status(
        self,
        request: Request[Any, Any, Any],
        settings: NamedDependency[Settings],
        units_of_work: NamedDependency[UnitsOfWork],
        nid: FromQuery[UUID],
        attempt: FromQuery[int | None] = None,
    ) -> None:
        form = await _signed_form(request, settings)
        code = form.get("ErrorCode", "")
        async with units_of_work() as uow:
            changed = await callbacks.apply_status(
                uow,
                nid,
                sid=form.get("MessageSid", ""),
                status=form.get("MessageStatus", ""),
                code=int(code) if code.isdigit() else None,
                attempt=attempt,
            )
        log.info(
            "status callback received", notification_id=str(nid), status=form.get("MessageStatus"), changed=changed
        )

    @post(
        "/inbound",
        status_code=200,
        summary="Record a reply: STOP opts out, START opts in. Only Twilio may.",
        media_type="text/xml",
    )
    async def inbound(
        self,
        request: Request[Any, Any, Any],
        settings: NamedDependency[Settings],
        units_of_work: NamedDependency[UnitsOfWork],
    ) -> Response[str]:
        form = await _signed_form(request, settings)
        async with units_of_work() as uow:
            await callbacks.apply_inbound(uow, phone=form.get("From", ""), body=form.get("Body", ""))
        return Response("<Response/>", media_type="text/xml")


async def _signed_form(request: Request[Any, Any, Any], settings: Settings) -> dict[str, str]:
    form = {key: str(value) for key, value in (await request.form()).items()}
    query = request.scope["query_string"].decode("latin-1")
    url = settings.public_url + request.url.path + (f"?{query}" if query else "")
    signature = request.headers.get("x-twilio-signature", "")
    if not RequestValidator(settings.twilio_auth_token).validate(url, form, signature):
        raise Problem(
            403, "bad-signature", "The signature does not fit this request; check that Twilio calls PUBLIC_URL."
        )
    return form

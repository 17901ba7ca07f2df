"""The provider's webhooks: delivery statuses and replies. A request without a valid signature changes nothing."""

import re
from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID

from litestar import Controller, Request, Response, post
from litestar.di import NamedDependency, Provide
from litestar.enums import RequestEncodingType
from litestar.params import FromQuery, QueryParameter
from structlog import get_logger
from twilio.request_validator import RequestValidator

from messaging.unit_of_work import UnitsOfWork
from notification.delivery import callbacks
from notification.settings import ApiSettings
from servicekit.http.problems import Problem
from servicekit.http.request_checks import refuse_text
from servicekit.text import is_line

log = get_logger()

Form = dict[str, str]
Wake = Callable[[], None]
SIGNATURE = "twilio"  # the scheme of security in the OpenAPI document
REFUSES = {400: "invalid-request", 403: "bad-signature"}
STORED = ("MessageSid", "From")  # a reply's Body is only compared with keywords: it may have any character
Attempt = Annotated[int | None, QueryParameter(ge=0, le=2**31 - 1)]
_CODE = re.compile(r"[0-9]{1,9}")


async def signed_form(request: Request[Any, Any, Any], settings: NamedDependency[ApiSettings]) -> Form:
    """The form of a request that Twilio has signed. The signature covers the URL that Twilio called, and the form.

    Twilio sends no other content type. Litestar's parser of multipart bodies fails on bytes that are not UTF-8, so any other body
    is read as an empty form, which the signature does not fit.
    """
    is_form = request.content_type[0] == RequestEncodingType.URL_ENCODED
    form = {key: str(value) for key, value in (await request.form()).items()} if is_form else {}
    query = request.scope["query_string"].decode("latin-1")
    url = settings.public_url + request.url.path + (f"?{query}" if query else "")
    signature = request.headers.get("x-twilio-signature", "")
    if not RequestValidator(settings.twilio_auth_token).validate(url, form, signature):
        raise Problem(
            403, "bad-signature", "The signature does not fit this request; check that Twilio calls PUBLIC_URL."
        )
    for name in STORED:
        if not is_line(form.get(name, "")):
            raise refuse_text(name)
    return form


class TwilioController(Controller):
    path = "/webhooks/twilio"
    tags = ("webhooks",)
    security = ({SIGNATURE: []},)
    dependencies = {"form": Provide(signed_form)}  # noqa: RUF012  (Litestar's way)

    @post(
        "/status",
        operation_id="record_status",
        status_code=204,
        summary="Record the delivery status of a message.",
        refuses=REFUSES,
        form={"MessageSid": "SM0af7651916cd43dd8448eb211c80319c", "MessageStatus": "delivered"},
    )
    async def status(
        self,
        form: NamedDependency[Form],
        units_of_work: NamedDependency[UnitsOfWork],
        nid: FromQuery[UUID],
        attempt: Attempt = None,
    ) -> None:
        """Only Twilio may: it signs the request. A lower status never overwrites a higher one, so callbacks may arrive in any
        order and any number of times. `nid` is the message, `attempt` the attempt to send it.
        """
        sid, status, code = (form.get(name, "") for name in ("MessageSid", "MessageStatus", "ErrorCode"))
        failure = int(code) if _CODE.fullmatch(code) else None
        async with units_of_work() as uow:
            changed = await callbacks.apply_status(uow, nid, sid=sid, status=status, code=failure, attempt=attempt)
        log.info("status callback received", notification_id=str(nid), status=status, changed=changed)

    @post(
        "/inbound",
        operation_id="record_reply",
        status_code=200,
        media_type="text/xml",
        summary="Record a YES, STOP or START reply.",
        refuses=REFUSES,
        form={"From": "+12025550123", "Body": "YES"},
        example="<Response/>",
    )
    async def inbound(
        self,
        form: NamedDependency[Form],
        units_of_work: NamedDependency[UnitsOfWork],
        settings: NamedDependency[ApiSettings],
        wake_dispatcher: NamedDependency[Wake],
    ) -> Response[str]:
        """Only Twilio may: it signs the request. YES releases the messages that wait for consent, STOP ends all messages to the
        number, START allows them again. Any other text changes nothing. The answer sends no SMS.
        """
        async with units_of_work() as uow:
            await callbacks.apply_inbound(
                uow,
                phone=form.get("From", ""),
                body=form.get("Body", ""),
                validity=settings.consent_seconds,
                wake_dispatcher=wake_dispatcher,
            )
        return Response("<Response/>", media_type="text/xml")

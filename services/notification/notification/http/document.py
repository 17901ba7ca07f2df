"""What the OpenAPI documents of the Notification service say beside what its routes declare."""

from datetime import UTC, datetime
from uuid import UUID

from litestar.openapi.spec import SecurityScheme

from notification.application.queries import LedgerCounts, NotificationView
from notification.domain.notification import NotificationState, Resolution
from notification.http.notifications import Resolve
from notification.http.push import Push, PushedMessage
from notification.http.webhooks import SIGNATURE
from servicekit.http.api_document import BEARER, Document
from servicekit.http.operator_document import EVENT, operator_document

LABOUR = UUID("01995a3c-52f4-7c1d-9a35-4f3d8f2f9a01")
PERSON = UUID("01995a3c-52f4-7c1d-9a35-4f3d8f2f9a02")
AT = datetime(2026, 11, 18, 6, 0, tzinfo=UTC)

PUBLIC = Document(
    title="FernLabour: Notification",
    description="What the SMS provider and the bus call: delivery statuses, replies and pushed messages.",
    tags={
        "webhooks": "Called by Twilio.",
        "push": "Called by Pub/Sub, if its subscriptions push.",
        "health": "For load balancers and supervisors.",
    },
    schemes={
        BEARER: SecurityScheme(
            type="http",
            scheme="bearer",
            bearer_format="JWT",
            description="An OIDC token that Google issued for `PUSH_SERVICE_ACCOUNT`, with the audience `PUSH_AUDIENCE`.",
        ),
        SIGNATURE: SecurityScheme(
            type="apiKey",
            name="X-Twilio-Signature",
            security_scheme_in="header",
            description="Twilio's signature of the URL and the form, made with `TWILIO_AUTH_TOKEN`.",
        ),
    },
    examples=[
        Push(
            message=PushedMessage(
                message_id="17", data="e30=", attributes={"ce-id": str(EVENT), "ce-type": "labour.begun"}
            ),
            subscription="projects/fern-local/subscriptions/notification.labour.begun",
            delivery_attempt=1,
        )
    ],
)

FOR_OPERATORS = operator_document(
    "FernLabour: Notification, for operators",
    [
        Resolve(decision=Resolution.SENT),
        NotificationView(
            id=EVENT,
            event_id=EVENT,
            event_type="labour.begun",
            labour_id=LABOUR,
            person_id=PERSON,
            person_name="Grace",
            channel="sms",
            state=NotificationState.IN_DOUBT,
            attempt=1,
            segments=1,
            sid=None,
            failure=None,
            created_at=AT,
            sending_at=AT,
            in_doubt_at=AT,
            sent_at=None,
            delivered_at=None,
        ),
        LedgerCounts(states={NotificationState.DELIVERED: 118}, oldest_unsettled_seconds=None),
    ],
)

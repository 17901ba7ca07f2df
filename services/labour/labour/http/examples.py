"""One example of each type that a request or an answer of the Labour service has. They are in its OpenAPI documents."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from labour.application.statistics import Difference, DifferenceBatch
from labour.application.told import DeliveryStatus, ToldRow, ToldView
from labour.application.views import (
    ContractionView,
    InviteView,
    LabourPage,
    LabourView,
    NewInviteView,
    SubscriberView,
    SubscriptionView,
    UpdateView,
)
from labour.domain.advice import Advice, Kind
from labour.domain.contraction import Phase
from labour.domain.statistics import PhaseTime, Statistics
from labour.domain.subscriber import Channel, Role, SubscriberState
from labour.domain.update import UpdateKind
from labour.http.contractions import CorrectContraction, EndContraction, StartContraction
from labour.http.labours import CompleteLabour, PlanLabour, PostUpdate
from labour.http.subscribers import ChangeRole, CreateInvite, RequestSubscription, Subscribe

BEGUN = datetime(2026, 11, 18, 6, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LABOUR = UUID("01995a3c-52f4-7c1d-9a35-4f3d8f2f9a01")
PERSON = UUID("01995a3c-52f4-7c1d-9a35-4f3d8f2f9a02")
OTHER = UUID("01995a3c-52f4-7c1d-9a35-4f3d8f2f9a03")
TOKEN = "kY3mB7pQx1vR9sT2wZ4aC6dE8fG0hJ5n-the-token"  # noqa: S105  (of no invite)

GRACE = SubscriberView(PERSON, "Grace", "+12025550123", SubscriberState.APPROVED, Role.FAMILY_AND_FRIENDS, Channel.SMS)
LABOUR_VIEW = LabourView(
    id=LABOUR,
    mother_name="Ada",
    first_labour=True,
    phase=Phase.EARLY,
    planned_at=BEGUN - 24 * HOUR,
    begun_at=BEGUN,
    completed_at=None,
    notes=None,
    version=7,
    roster_version=1,
    subscribers=[GRACE],
)

EXAMPLES = (
    PlanLabour(mother_name="Ada"),
    CompleteLabour(notes="A girl, 3,400 g.", baby_name="Ida"),
    PostUpdate(kind=UpdateKind.ANNOUNCEMENT, text="Nearly there!"),
    StartContraction(),
    EndContraction(intensity=6),
    CorrectContraction(intensity=7),
    CreateInvite(valid_hours=72),
    Subscribe(name="Grace", phone="+12025550123"),
    RequestSubscription(token=TOKEN, name="Grace", phone="+12025550123"),
    ChangeRole(role=Role.BIRTH_PARTNER),
    LABOUR_VIEW,
    LabourPage(items=[LABOUR_VIEW], next=None),
    ContractionView(id=OTHER, started_at=BEGUN, ended_at=BEGUN + MINUTE, intensity=6),
    UpdateView(id=OTHER, kind=UpdateKind.ANNOUNCEMENT, text="Nearly there!", posted_at=BEGUN + HOUR),
    InviteView(id=OTHER, created_at=BEGUN, expires_at=BEGUN + 72 * HOUR, revoked_at=None),
    NewInviteView(id=OTHER, token=TOKEN, expires_at=BEGUN + 72 * HOUR),
    GRACE,
    SubscriptionView(PERSON, LABOUR, "Ada", SubscriberState.REQUESTED, Role.FAMILY_AND_FRIENDS, Channel.SMS),
    ToldView(
        notification_id=OTHER,
        person_id=PERSON,
        name="Grace",
        event_type="labour.begun",
        channel="sms",
        status=DeliveryStatus.DELIVERED,
        at=BEGUN + MINUTE,
        reason=None,
        news="delivered",
    ),
    Advice(
        Kind.PREPARE, because="For the last hour contractions came at least every 5 minutes and took a minute or more."
    ),
    Statistics(
        contractions=12,
        average_length_seconds=62.5,
        average_interval_seconds=290.0,
        phases=[PhaseTime(Phase.EARLY, entered_at=BEGUN, seconds=5400.0)],
    ),
)

EXAMPLES_FOR_OPERATORS = (
    ToldRow(
        notification_id=OTHER,
        labour_id=LABOUR,
        person_id=PERSON,
        event_id=LABOUR,
        event_type="labour.begun",
        channel="sms",
        status=DeliveryStatus.DELIVERED,
        at=BEGUN + MINUTE,
    ),
    DifferenceBatch(items=[Difference(LABOUR, what="contractions", balance=11, postings=12)], next=None),
)

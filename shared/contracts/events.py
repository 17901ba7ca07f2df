"""The events. A name is in the past tense; a field is a fact at that time, never a reference to be looked up later."""

from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

Version = Annotated[int, Meta(ge=0)]
Phone = Annotated[str, Meta(pattern=r"^\+[1-9][0-9]{6,14}$", description="E.164")]
Name = Annotated[str, Meta(min_length=1, max_length=100)]


class Event(Struct, frozen=True, kw_only=True):
    """Every event is about one labour, whose id is also its ordering key."""

    type: ClassVar[str]
    version: ClassVar[int] = 1

    labour_id: UUID


class SubscriberAdded(Event, frozen=True, kw_only=True):
    """A person joins the roster and will be notified. `roster_version` counts the changes of a roster, without gaps, from 1.

    `mother_name` is for the text that asks the person for consent. Events from before it was added have none.
    """

    type = "subscriber.added"

    roster_version: Annotated[int, Meta(ge=1)]
    person_id: UUID
    name: Name
    phone: Phone
    mother_name: Name | None = None


class SubscriberRemoved(Event, frozen=True, kw_only=True):
    """A person leaves the roster. Later events notify them no more."""

    type = "subscriber.removed"

    roster_version: Annotated[int, Meta(ge=1)]
    person_id: UUID


class _Person(Event, frozen=True, kw_only=True):
    """About one person. Does not change the roster, so no message is sent because of it."""

    person_id: UUID


class SubscriberRequested(_Person, frozen=True, kw_only=True):
    """A person with an invite asks to be notified."""

    type = "subscriber.requested"

    name: Name


class SubscriberWithdrawn(_Person, frozen=True, kw_only=True):
    """A request was refused or withdrawn, or the person was blocked."""

    type = "subscriber.withdrawn"


class SubscriberBlocked(_Person, frozen=True, kw_only=True):
    """The mother has blocked a person: their requests are refused."""

    type = "subscriber.blocked"


class SubscriberUnblocked(_Person, frozen=True, kw_only=True):
    """The mother lets a blocked person ask again."""

    type = "subscriber.unblocked"


class SubscriberRoleChanged(_Person, frozen=True, kw_only=True):
    """A person has another role from now on, such as birth partner: what they may see changes."""

    type = "subscriber.role-changed"

    role: str


class InviteCreated(Event, frozen=True, kw_only=True):
    """The mother has made an invite, with which people may ask to be notified."""

    type = "invite.created"

    invite_id: UUID
    expires_at: datetime


class InviteRevoked(Event, frozen=True, kw_only=True):
    """An invite is no longer valid."""

    type = "invite.revoked"

    invite_id: UUID


class LabourPlanned(Event, frozen=True, kw_only=True):
    """A mother plans a labour. No message is sent yet."""

    type = "labour.planned"

    mother_name: Name
    first_labour: bool
    planned_at: datetime


class LabourBegun(Event, frozen=True, kw_only=True):
    """The labour has begun. Notify those who are on the roster at `roster_version`: apply that version first."""

    type = "labour.begun"

    roster_version: Version
    mother_name: Name
    begun_at: datetime


class LabourAnnounced(Event, frozen=True, kw_only=True):
    """The mother has posted an announcement. Notify those who are on the roster at `roster_version`: apply that version first."""

    type = "labour.announced"

    roster_version: Version
    mother_name: Name
    text: Annotated[str, Meta(min_length=1, max_length=280)]


class LabourStatusPosted(Event, frozen=True, kw_only=True):
    """The mother has posted a status, which is shown to those who read the labour. No message is sent."""

    type = "labour.status-posted"

    update_id: UUID
    text: Annotated[str, Meta(min_length=1, max_length=280)]


class LabourStatusRemoved(Event, frozen=True, kw_only=True):
    """The mother has deleted a status."""

    type = "labour.status-removed"

    update_id: UUID


class LabourPhaseChanged(Event, frozen=True, kw_only=True):
    """The labour has gone from the phase `previous` to a later `phase`. Beginning and completing have events of their own."""

    type = "labour.phase-changed"

    phase: str
    previous: str
    changed_at: datetime


class ContractionStarted(Event, frozen=True, kw_only=True):
    """A contraction begins."""

    type = "contraction.started"

    contraction_id: UUID
    started_at: datetime


class ContractionEnded(Event, frozen=True, kw_only=True):
    """A contraction has ended."""

    type = "contraction.ended"

    contraction_id: UUID
    started_at: datetime
    ended_at: datetime
    intensity: Annotated[int, Meta(ge=0, le=10)]


class ContractionCorrected(Event, frozen=True, kw_only=True):
    """A contraction was corrected. The fields have the new values; a running contraction has no end and no intensity."""

    type = "contraction.corrected"

    contraction_id: UUID
    started_at: datetime
    ended_at: datetime | None
    intensity: Annotated[int, Meta(ge=0, le=10)] | None


class ContractionDeleted(Event, frozen=True, kw_only=True):
    """A contraction was recorded by mistake and never happened."""

    type = "contraction.deleted"

    contraction_id: UUID


class LabourCompleted(Event, frozen=True, kw_only=True):
    """The baby is here. Notify those who are on the roster at `roster_version`: apply that version first."""

    type = "labour.completed"

    roster_version: Version
    mother_name: Name
    completed_at: datetime


class LabourCompletedV2(LabourCompleted, frozen=True, kw_only=True):
    """The baby is here, and may have a name. Notify those who are on the roster at `roster_version`: apply that version first.

    Recorded if the mother has told the name; a birth without a name is still recorded as version 1.
    """

    version = 2

    baby_name: Name | None


class _Notification(Event, frozen=True, kw_only=True):
    """The delivery status of one message to one person about the event `cause_id`. Carries no phone number.

    `cause_type` is the type of that event, or `consent.requested` for the message that asks the person for consent.
    """

    notification_id: UUID
    cause_id: UUID
    cause_type: str
    person_id: UUID
    channel: str


class NotificationSent(_Notification, frozen=True, kw_only=True):
    """The provider has accepted the message."""

    type = "notification.sent"

    sent_at: datetime


class NotificationDelivered(_Notification, frozen=True, kw_only=True):
    """The provider reports that the message has reached the phone."""

    type = "notification.delivered"

    delivered_at: datetime


class NotificationFailed(_Notification, frozen=True, kw_only=True):
    """The message will not reach the person: the provider, the network or the person refused it, or they did not agree in time.

    `reason` is a sentence for people, without personal data.
    """

    type = "notification.failed"

    failed_at: datetime
    reason: str


class NotificationSuperseded(_Notification, frozen=True, kw_only=True):
    """The message was not sent, because a newer one to the same person about the same labour was sent instead.

    If it turns out later that the provider had it, `notification.sent` follows. `reason` is a sentence for people.
    """

    type = "notification.superseded"

    superseded_at: datetime
    reason: str

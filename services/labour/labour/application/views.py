"""The views that the API returns. Each field of a view is a column or an attribute of the same name."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec

from labour.domain.contraction import Phase
from labour.domain.labour import Labour
from labour.domain.subscriber import Channel, Role, Subscriber, SubscriberState
from labour.domain.update import UpdateKind

LISTED = (SubscriberState.REQUESTED, SubscriberState.APPROVED, SubscriberState.BLOCKED)  # shown to the mother

V = TypeVar("V", bound=msgspec.Struct)


def show(view: type[V]) -> Callable[[Any], V]:
    """A function that makes the view of an object, by copying the attributes that the view has."""
    return lambda source: view(**{name: getattr(source, name) for name in view.__struct_fields__})


class SubscriberView(msgspec.Struct, frozen=True):
    """A subscriber as the mother sees them."""

    id: UUID
    name: str
    phone: str
    state: SubscriberState
    role: Role
    channel: Channel


class LabourView(msgspec.Struct, frozen=True):
    """A labour as its mother sees it, with its subscribers."""

    id: UUID
    mother_name: str
    first_labour: bool
    phase: Phase
    planned_at: datetime
    begun_at: datetime | None
    completed_at: datetime | None
    notes: str | None
    version: int
    roster_version: int
    subscribers: list[SubscriberView]
    view: Literal["mother"] = "mother"

    @classmethod
    def of(cls, labour: Labour) -> "LabourView":
        fields = {name: getattr(labour, name) for name in cls.__struct_fields__ if name not in ("subscribers", "view")}
        return cls(
            **fields, subscribers=[show(SubscriberView)(one) for one in labour.subscribers if one.state in LISTED]
        )


class SubscribedLabourView(msgspec.Struct, frozen=True):
    """A labour as an approved subscriber sees it: its course, and nothing about other subscribers.

    It has no version, because each contraction raises the version, and not every subscriber may know of contractions.
    """

    id: UUID
    mother_name: str
    phase: Phase
    begun_at: datetime | None
    completed_at: datetime | None
    view: Literal["subscriber"] = "subscriber"


class LabourPage(msgspec.Struct, frozen=True):
    """`next` is the `after` of the next page, or null on the last one."""

    items: list[LabourView]
    next: UUID | None


class ContractionView(msgspec.Struct, frozen=True):
    """A running contraction has no end and no intensity."""

    id: UUID
    started_at: datetime
    ended_at: datetime | None
    intensity: int | None


class UpdateView(msgspec.Struct, frozen=True):
    id: UUID
    kind: UpdateKind
    text: str
    posted_at: datetime


class InviteView(msgspec.Struct, frozen=True):
    id: UUID
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None


class NewInviteView(msgspec.Struct, frozen=True):
    """The token is returned here and never again; only its digest is stored."""

    id: UUID
    token: str
    expires_at: datetime


class SubscriptionView(msgspec.Struct, frozen=True):
    """A subscription as its subscriber sees it."""

    id: UUID
    labour_id: UUID
    mother_name: str
    state: SubscriberState
    role: Role
    channel: Channel

    @classmethod
    def of(cls, subscription: tuple[Labour, Subscriber]) -> "SubscriptionView":
        labour, own = subscription
        return cls(own.id, labour.id, labour.mother_name, own.state, own.role, own.channel).discreet()

    def discreet(self) -> "SubscriptionView":
        """A blocked person is shown as removed, so that the view does not reveal the block."""
        blocked = self.state is SubscriberState.BLOCKED
        return msgspec.structs.replace(self, state=SubscriberState.REMOVED) if blocked else self

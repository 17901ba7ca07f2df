"""Subscribers of a labour and the rules about them. `Labour` checks that it is not complete, and records the events.

REQUESTED ─► APPROVED ─► REMOVED | LEFT        only approved subscribers are on the roster and are notified
     └──────────┴──────► BLOCKED ─► REMOVED    a blocked person cannot request again until unblocked

`roster_version` counts the changes of the roster, without gaps. An event that notifies carries the version it was made under.
"""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from uuid_utils.compat import uuid7

from contracts import events
from labour.domain import errors

ROSTER_LIMIT = 50  # subscribers; each notifying event sends that many messages
REQUEST_LIMIT = 100  # people that a labour has had, removed ones too, from which on requests are refused
PEOPLE_LIMIT = REQUEST_LIMIT + ROSTER_LIMIT  # the same for people whom the mother adds: requests cannot use it up


class SubscriberState(StrEnum):
    REQUESTED = "requested"
    APPROVED = "approved"
    REMOVED = "removed"
    LEFT = "left"
    BLOCKED = "blocked"


class Role(StrEnum):
    """What an approved subscriber may read: a birth partner also reads contractions and advice."""

    BIRTH_PARTNER = "birth-partner"
    FAMILY_AND_FRIENDS = "family-and-friends"


class Channel(StrEnum):
    SMS = "sms"


class Subscriber:
    """`user_id` is None if the mother added the person herself: they need no account."""

    def __init__(
        self,
        *,
        name: str,
        phone: str,
        at: datetime,
        user_id: str | None = None,
        state: SubscriberState = SubscriberState.APPROVED,
        channel: Channel = Channel.SMS,
    ) -> None:
        self.id: UUID = uuid7()
        self.name, self.phone, self.user_id = name, phone, user_id
        self.state, self.role, self.channel = state, Role.FAMILY_AND_FRIENDS, channel
        self.subscribed_at = at

    @property
    def is_current(self) -> bool:
        return self.state in (SubscriberState.REQUESTED, SubscriberState.APPROVED)


Change = tuple[Subscriber, list[events.Event]]  # the changed subscriber, and the events for the labour to record


class SubscriberList:
    """The rules over all subscribers of one labour. Each method checks, changes the list in place and returns the change."""

    def __init__(
        self, labour_id: UUID, subscribers: list[Subscriber], *, roster_version: int, mother_name: str
    ) -> None:
        self._labour_id, self._subscribers = labour_id, subscribers
        self._roster_version, self._mother_name = roster_version, mother_name

    def refuse_blocked(self, user_id: str, phone: str) -> None:
        """A blocked person gets the same error as for a bad invite, so that the answer does not reveal the block."""
        blocked = (one for one in self._subscribers if one.state is SubscriberState.BLOCKED)
        if any(one.user_id == user_id or one.phone == phone for one in blocked):
            raise errors.InviteInvalid(self._labour_id)

    def request(self, *, user_id: str, name: str, phone: str, channel: Channel, at: datetime) -> Change:
        """Add a request to subscribe. A number that is on the list already is accepted, so that the answer does not reveal who
        is on it. The mother sees both, and can approve one of them.
        """
        if any(one.is_current and one.user_id == user_id for one in self._subscribers):
            raise errors.AlreadySubscribed(self._labour_id)
        self._refuse_beyond(REQUEST_LIMIT, "Ask the mother to add you.")
        requested = SubscriberState.REQUESTED
        subscriber = Subscriber(name=name, phone=phone, at=at, user_id=user_id, state=requested, channel=channel)
        self._subscribers.append(subscriber)
        return subscriber, [events.SubscriberRequested(labour_id=self._labour_id, person_id=subscriber.id, name=name)]

    def add(self, *, name: str, phone: str, at: datetime) -> Change:
        if any(one.is_current and one.phone == phone for one in self._subscribers):
            raise errors.AlreadySubscribed(self._labour_id)
        self._refuse_when_full()
        self._refuse_beyond(PEOPLE_LIMIT, "Approve a request, or keep those who are on the list.")
        subscriber = Subscriber(name=name, phone=phone, at=at)
        self._subscribers.append(subscriber)
        return self._added(subscriber)

    def approve(self, subscriber_id: UUID) -> Change:
        subscriber = self._find(subscriber_id, SubscriberState.REQUESTED)
        approved = (one for one in self._subscribers if one.state is SubscriberState.APPROVED)
        if any(one.phone == subscriber.phone for one in approved):
            raise errors.AlreadySubscribed(self._labour_id)
        self._refuse_when_full()
        subscriber.state = SubscriberState.APPROVED
        return self._added(subscriber)

    def end(self, subscriber_id: UUID, state: SubscriberState) -> Change:
        """`state` is REMOVED if the mother decides, and LEFT if the subscriber does."""
        return self._end(self._find_current(subscriber_id), state)

    def block(self, subscriber_id: UUID) -> Change:
        """Block a person, also after they were removed or left, so that they cannot request again."""
        subscriber = self._find(subscriber_id, *(set(SubscriberState) - {SubscriberState.BLOCKED}))
        _, ended = self._end(subscriber, SubscriberState.BLOCKED)
        return subscriber, [*ended, events.SubscriberBlocked(labour_id=self._labour_id, person_id=subscriber_id)]

    def unblock(self, subscriber_id: UUID) -> Change:
        """Allows the person to request again; does not put them back on the roster."""
        subscriber = self._find(subscriber_id, SubscriberState.BLOCKED)
        subscriber.state = SubscriberState.REMOVED
        return subscriber, [events.SubscriberUnblocked(labour_id=self._labour_id, person_id=subscriber_id)]

    def change_role(self, subscriber_id: UUID, role: Role) -> Change:
        """Emits no event if the role is the same as before."""
        subscriber = self._find_current(subscriber_id)
        if subscriber.role is role:
            return subscriber, []
        subscriber.role = role
        return subscriber, [events.SubscriberRoleChanged(labour_id=self._labour_id, person_id=subscriber_id, role=role)]

    def _find(self, subscriber_id: UUID, *states: SubscriberState) -> Subscriber:
        subscriber = next((one for one in self._subscribers if one.id == subscriber_id), None)
        if subscriber is None:
            raise errors.NotSubscribed(self._labour_id, subscriber_id)
        if subscriber.state not in states:
            raise errors.NotPossibleNow(self._labour_id, f"Not possible: this subscriber is {subscriber.state}.")
        return subscriber

    def _find_current(self, subscriber_id: UUID) -> Subscriber:
        """The error names no state: to the subscriber, a block must look like a removal."""
        subscriber = self._find(subscriber_id, *SubscriberState)
        if not subscriber.is_current:
            raise errors.NotPossibleNow(self._labour_id, "Not possible: this subscriber is not on the list any more.")
        return subscriber

    def _refuse_beyond(self, limit: int, advice: str) -> None:
        """Raises `TooMany` if so many people were ever added or sent a request. Removing one does not make room for another."""
        if len(self._subscribers) >= limit:
            raise errors.TooMany(self._labour_id, "people", limit, advice)

    def _refuse_when_full(self) -> None:
        if sum(one.state is SubscriberState.APPROVED for one in self._subscribers) >= ROSTER_LIMIT:
            raise errors.RosterFull(self._labour_id, ROSTER_LIMIT)

    def _added(self, subscriber: Subscriber) -> Change:
        added = events.SubscriberAdded(
            labour_id=self._labour_id,
            roster_version=self._roster_version + 1,
            person_id=subscriber.id,
            name=subscriber.name,
            phone=subscriber.phone,
            mother_name=self._mother_name,
        )
        return subscriber, [added]

    def _end(self, subscriber: Subscriber, state: SubscriberState) -> Change:
        """Emits no event if the person was neither approved nor requested."""
        before, subscriber.state = subscriber.state, state
        labour_id, person_id, version = self._labour_id, subscriber.id, self._roster_version + 1
        if before is SubscriberState.APPROVED:
            removed = events.SubscriberRemoved(labour_id=labour_id, roster_version=version, person_id=person_id)
            return subscriber, [removed]
        if before is SubscriberState.REQUESTED:
            return subscriber, [events.SubscriberWithdrawn(labour_id=labour_id, person_id=person_id)]
        return subscriber, []

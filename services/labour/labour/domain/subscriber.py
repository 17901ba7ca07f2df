"""Who may be told: invites, requests, and the roster. Pure rules, the part of a labour that is about other people.

REQUESTED ─► APPROVED ─► REMOVED | LEFT        only the approved are on the roster and are told
     └──────────┴──────► BLOCKED ─► REMOVED    a blocked person cannot ask again until unblocked

`roster_version` counts the changes of the roster, without gaps. An event that tells people carries the version it was made under.
"""

import hashlib
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from uuid_utils.compat import uuid7

from contracts.events import (
    InviteCreated,
    InviteRevoked,
    SubscriberAdded,
    SubscriberBlocked,
    SubscriberRemoved,
    SubscriberRequested,
    SubscriberRoleChanged,
    SubscriberUnblocked,
    SubscriberWithdrawn,
)
from labour.domain.errors import (
    ROSTER_LIMIT,
    AlreadySubscribed,
    InviteInvalid,
    NotPossibleNow,
    NotSubscribed,
    RosterFull,
)
from messaging.aggregate import Aggregate


class State(StrEnum):
    REQUESTED = "requested"
    APPROVED = "approved"
    REMOVED = "removed"
    LEFT = "left"
    BLOCKED = "blocked"


class Role(StrEnum):
    """What somebody may see beyond the news: a birth partner also sees contractions and advice."""

    BIRTH_PARTNER = "birth-partner"
    FAMILY_AND_FRIENDS = "family-and-friends"


class Channel(StrEnum):
    SMS = "sms"


class Subscriber:
    """`user_id` is None for somebody the mother put on the list herself, who need not have an account."""

    def __init__(
        self, *, name: str, phone: str, at: datetime, user_id: str | None = None, state: State = State.APPROVED
    ) -> None:
        self.id: UUID = uuid7()
        self.name, self.phone, self.user_id = name, phone, user_id
        self.state, self.role, self.channel = state, Role.FAMILY_AND_FRIENDS, Channel.SMS
        self.subscribed_at = at

    @property
    def is_current(self) -> bool:
        return self.state in (State.REQUESTED, State.APPROVED)


class Invite:
    """The token itself is shown once and kept nowhere: whoever reads the database cannot use an invite."""

    def __init__(self, *, token: str, expires_at: datetime, at: datetime) -> None:
        self.id: UUID = uuid7()
        self.token_hash = hash_token(token)
        self.created_at, self.expires_at = at, expires_at
        self.revoked_at: datetime | None = None

    def is_good(self, now: datetime) -> bool:
        return self.revoked_at is None and now < self.expires_at


def hash_token(token: str) -> bytes:
    """Tokens are long and random, so a plain digest is enough."""
    return hashlib.sha256(token.encode()).digest()


class People(Aggregate):
    """The rules: the part of the aggregate that `Labour` completes."""

    id: UUID
    roster_version: int
    subscribers: list[Subscriber]
    invites: list[Invite]

    def refuse_when_complete(self) -> None:
        raise NotImplementedError

    def invite(self, *, token: str, expires_at: datetime, at: datetime) -> Invite:
        self.refuse_when_complete()
        invite = Invite(token=token, expires_at=expires_at, at=at)
        self.invites.append(invite)
        self.record(InviteCreated(labour_id=self.id, invite_id=invite.id, expires_at=expires_at), at)
        return invite

    def revoke_invite(self, invite_id: UUID, at: datetime) -> None:
        invite = next((one for one in self.invites if one.id == invite_id and one.revoked_at is None), None)
        if invite is None:
            raise InviteInvalid(self.id)
        invite.revoked_at = at
        self.record(InviteRevoked(labour_id=self.id, invite_id=invite_id), at)

    def request(
        self, *, token: str, user_id: str, name: str, phone: str, at: datetime, channel: Channel = Channel.SMS
    ) -> Subscriber:
        """A blocked person hears the same as one with a bad invite: being blocked is nobody's business."""
        self.refuse_when_complete()
        wanted = hash_token(token)
        if not any(invite.token_hash == wanted and invite.is_good(at) for invite in self.invites):
            raise InviteInvalid(self.id)
        if any(
            one.state is State.BLOCKED and (one.user_id == user_id or one.phone == phone) for one in self.subscribers
        ):
            raise InviteInvalid(self.id)
        self._refuse_twice(phone, user_id)
        subscriber = Subscriber(name=name, phone=phone, at=at, user_id=user_id, state=State.REQUESTED)
        subscriber.channel = channel
        self.subscribers.append(subscriber)
        self.record(SubscriberRequested(labour_id=self.id, person_id=subscriber.id, name=name), at)
        return subscriber

    def subscribe(self, *, name: str, phone: str, at: datetime) -> Subscriber:
        """The mother puts somebody on the list herself."""
        self.refuse_when_complete()
        self._refuse_twice(phone, None)
        self._refuse_when_full()
        subscriber = Subscriber(name=name, phone=phone, at=at)
        self.subscribers.append(subscriber)
        self._added(subscriber, at)
        return subscriber

    def approve(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        self.refuse_when_complete()
        subscriber = self._subscriber(subscriber_id, State.REQUESTED)
        self._refuse_when_full()
        subscriber.state = State.APPROVED
        self._added(subscriber, at)
        return subscriber

    def unsubscribe(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        """Allowed when complete, too: nobody has to stay on a list."""
        return self._go(self._subscriber(subscriber_id, State.REQUESTED, State.APPROVED), State.REMOVED, at)

    def leave(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        return self._go(self._subscriber(subscriber_id, State.REQUESTED, State.APPROVED), State.LEFT, at)

    def block(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        """Also somebody who is gone: they may have asked again and again."""
        subscriber = self._subscriber(subscriber_id, *(state for state in State if state is not State.BLOCKED))
        self._go(subscriber, State.BLOCKED, at)
        self.record(SubscriberBlocked(labour_id=self.id, person_id=subscriber_id), at)
        return subscriber

    def unblock(self, subscriber_id: UUID, at: datetime) -> Subscriber:
        """They may ask again; they are not back."""
        subscriber = self._subscriber(subscriber_id, State.BLOCKED)
        subscriber.state = State.REMOVED
        self.record(SubscriberUnblocked(labour_id=self.id, person_id=subscriber_id), at)
        return subscriber

    def change_role(self, subscriber_id: UUID, role: Role, at: datetime) -> Subscriber:
        subscriber = self._subscriber(subscriber_id, State.REQUESTED, State.APPROVED)
        if subscriber.role is not role:
            subscriber.role = role
            self.record(SubscriberRoleChanged(labour_id=self.id, person_id=subscriber_id, role=role), at)
        return subscriber

    def _subscriber(self, subscriber_id: UUID, *states: State) -> Subscriber:
        subscriber = next((one for one in self.subscribers if one.id == subscriber_id), None)
        if subscriber is None:
            raise NotSubscribed(self.id, subscriber_id)
        if subscriber.state not in states:
            raise NotPossibleNow(self.id, f"This person is {subscriber.state}.")
        return subscriber

    def _refuse_twice(self, phone: str, user_id: str | None) -> None:
        if any(
            one.is_current and (one.phone == phone or (user_id and one.user_id == user_id)) for one in self.subscribers
        ):
            raise AlreadySubscribed(self.id)

    def _refuse_when_full(self) -> None:
        if sum(one.state is State.APPROVED for one in self.subscribers) >= ROSTER_LIMIT:
            raise RosterFull(self.id)

    def _added(self, subscriber: Subscriber, at: datetime) -> None:
        self.roster_version += 1
        self.record(
            SubscriberAdded(
                labour_id=self.id,
                roster_version=self.roster_version,
                person_id=subscriber.id,
                name=subscriber.name,
                phone=subscriber.phone,
            ),
            at,
        )

    def _go(self, subscriber: Subscriber, state: State, at: datetime) -> Subscriber:
        """Away, from the roster or from asking to be on it; who was neither leaves no trace."""
        before, subscriber.state = subscriber.state, state
        if before is State.APPROVED:
            self.roster_version += 1
            gone = SubscriberRemoved(labour_id=self.id, roster_version=self.roster_version, person_id=subscriber.id)
            self.record(gone, at)
        elif before is State.REQUESTED:
            self.record(SubscriberWithdrawn(labour_id=self.id, person_id=subscriber.id), at)
        return subscriber

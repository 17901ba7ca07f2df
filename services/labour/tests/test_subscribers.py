"""The rules of invites, requests and the roster, without a database."""

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.events import SubscriberAdded, SubscriberRemoved
from labour.domain.errors import (
    AlreadySubscribed,
    InviteInvalid,
    LabourAlreadyCompleted,
    LabourError,
    NotPossibleNow,
)
from labour.domain.labour import Labour
from labour.domain.subscriber import Role, Subscriber, SubscriberState
from tests.labour_parts import NOW, events_of, planned

DAY = timedelta(days=1)
TOKEN = "a-long-and-random-token"


def invited() -> Labour:
    labour = planned()
    labour.invite(token=TOKEN, expires_at=NOW + DAY, at=NOW)
    labour.collect()
    return labour


def ask(
    labour: Labour, user: str = "grace", phone: str = "+12025550123", at: datetime = NOW, token: str = TOKEN
) -> Subscriber:
    return labour.request(token=token, user_id=user, name=user.title(), phone=phone, at=at)


def types(labour: Labour) -> list[str]:
    return [event.type for event in events_of(labour)]


def test_only_approved_subscribers_are_on_the_roster() -> None:
    labour = invited()

    grace = ask(labour)
    assert (grace.state, labour.roster_version) == (SubscriberState.REQUESTED, 0)
    labour.approve(grace.id, NOW)

    assert (grace.state, labour.roster_version) == (SubscriberState.APPROVED, 1)
    assert types(labour) == ["subscriber.requested", "subscriber.added"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda labour: ask(labour, token="another-token-altogether"),
        lambda labour: ask(labour, at=NOW + DAY),
        lambda labour: (labour.revoke_invite(labour.invites[0].id, NOW), ask(labour)),
    ],
    ids=["unknown", "expired", "revoked"],
)
def test_an_invite_must_be_known_fresh_and_not_revoked(spoil: Callable[[Labour], object]) -> None:
    labour = invited()

    with pytest.raises(InviteInvalid):
        spoil(labour)

    assert labour.subscribers == []


def test_the_token_itself_is_not_kept() -> None:
    [invite] = invited().invites

    assert TOKEN.encode() not in invite.token_hash


def test_a_person_can_request_once_and_again_after_leaving() -> None:
    labour = invited()
    grace = ask(labour)
    with pytest.raises(AlreadySubscribed):
        ask(labour, phone="+12025550199")
    labour.leave(grace.id, NOW)
    again = ask(labour)

    assert again.id != grace.id
    assert types(labour) == ["subscriber.requested", "subscriber.withdrawn", "subscriber.requested"]


def test_a_blocked_person_is_off_the_roster_and_cannot_request_again_from_the_same_account_or_phone() -> None:
    labour = invited()
    grace = ask(labour)
    labour.approve(grace.id, NOW)
    labour.block(grace.id, NOW)

    for user, phone in (("grace", "+12025550199"), ("someone-else", "+12025550123")):
        with pytest.raises(InviteInvalid):
            ask(labour, user=user, phone=phone)
    labour.unblock(grace.id, NOW)
    assert ask(labour).state is SubscriberState.REQUESTED

    assert labour.roster_version == 2
    assert types(labour)[1:5] == [
        "subscriber.added",
        "subscriber.removed",
        "subscriber.blocked",
        "subscriber.unblocked",
    ]


def test_who_has_no_valid_invite_or_is_blocked_does_not_learn_that_the_baby_is_there() -> None:
    labour = invited()
    grace = ask(labour)
    labour.block(grace.id, NOW)
    labour.complete(NOW)

    with pytest.raises(InviteInvalid):
        ask(labour)
    with pytest.raises(InviteInvalid):
        ask(labour, user="eve", phone="+12025550199", at=NOW + DAY)
    with pytest.raises(LabourAlreadyCompleted):
        ask(labour, user="eve", phone="+12025550199")


def test_a_blocked_person_who_leaves_gets_the_answer_of_a_removed_one() -> None:
    labour = invited()
    answers = []
    for user, end in (("grace", labour.block), ("alan", labour.unsubscribe)):
        subscriber = ask(labour, user=user, phone=f"+120255501{len(user)}0")
        end(subscriber.id, NOW)
        with pytest.raises(NotPossibleNow) as refused:
            labour.leave(subscriber.id, NOW)
        answers.append(str(refused.value))

    assert answers[0] == answers[1]


def test_a_role_is_changed_once() -> None:
    labour = invited()
    grace = ask(labour)
    labour.collect()

    labour.change_role(grace.id, Role.BIRTH_PARTNER, NOW)
    labour.change_role(grace.id, Role.BIRTH_PARTNER, NOW)

    assert types(labour) == ["subscriber.role-changed"]


def test_a_request_with_a_number_that_is_on_the_list_is_answered_like_any_other_and_the_mother_is_told() -> None:
    labour = invited()
    labour.approve(ask(labour).id, NOW)
    labour.collect()

    same = ask(labour, user="alan")
    fresh = ask(labour, user="eve", phone="+12025550199")

    assert (same.state, fresh.state) == (SubscriberState.REQUESTED, SubscriberState.REQUESTED)
    assert types(labour) == ["subscriber.requested", "subscriber.requested"]
    with pytest.raises(AlreadySubscribed):
        labour.approve(same.id, NOW)
    labour.unsubscribe(labour.subscribers[0].id, NOW)
    labour.approve(same.id, NOW)


@pytest.mark.parametrize("verb", ["approve", "unblock"])
def test_what_does_not_fit_the_state_is_refused(verb: str) -> None:
    labour = invited()
    grace = labour.subscribe(name="Grace", phone="+12025550123", at=NOW)

    with pytest.raises(NotPossibleNow):
        getattr(labour, verb)(grace.id, NOW)


VERBS = ["ask", "subscribe", "approve", "unsubscribe", "leave", "block", "unblock"]


@given(st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 4)), max_size=50))
def test_the_roster_is_always_what_its_events_say(steps: list[tuple[str, int]]) -> None:
    labour = invited()
    for verb, number in steps:
        phone, user = f"+1202555010{number}", f"user-{number}"
        chosen = labour.subscribers[number % len(labour.subscribers)].id if labour.subscribers else None
        try:
            if verb == "ask":
                ask(labour, user=user, phone=phone)
            elif verb == "subscribe":
                labour.subscribe(name="Grace", phone=phone, at=NOW)
            elif chosen:
                getattr(labour, verb)(chosen, NOW)
        except LabourError:
            pass

    changes = [event for event in events_of(labour) if isinstance(event, SubscriberAdded | SubscriberRemoved)]
    roster = set[UUID]()
    for event in changes:
        (roster.add if isinstance(event, SubscriberAdded) else roster.remove)(event.person_id)
    assert roster == {one.id for one in labour.subscribers if one.state is SubscriberState.APPROVED}
    assert [event.roster_version for event in changes] == list(range(1, labour.roster_version + 1))
    approved = [one.phone for one in labour.subscribers if one.state is SubscriberState.APPROVED]
    assert len(approved) == len(set(approved))

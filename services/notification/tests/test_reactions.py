"""The reaction to each event, as a pure function, without a database."""

import random
from datetime import UTC, datetime
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from contracts.events import (
    Event,
    InviteRevoked,
    LabourAnnounced,
    LabourBegun,
    LabourCompletedV2,
    SubscriberAdded,
    SubscriberRemoved,
)
from contracts.ids import derived_id
from notification.domain.reactions import react
from notification.domain.roster import Roster

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
LABOUR = uuid7()


def added(version: int, person: UUID | None = None) -> SubscriberAdded:
    person = person or uuid7()
    return SubscriberAdded(
        labour_id=LABOUR, roster_version=version, person_id=person, name="Grace", phone="+12025550123"
    )


def removed(version: int, person: UUID) -> SubscriberRemoved:
    return SubscriberRemoved(labour_id=LABOUR, roster_version=version, person_id=person)


def completed(version: int, baby_name: str | None = None) -> LabourCompletedV2:
    return LabourCompletedV2(
        labour_id=LABOUR, roster_version=version, mother_name="Ada", completed_at=NOW, baby_name=baby_name
    )


def after(*events: Event) -> Roster:
    roster = Roster(LABOUR)
    for event in events:
        reaction = react(uuid7(), event, roster)
        assert not reaction.early
        roster = reaction.roster
    return roster


def told(roster: Roster, event: Event) -> set[UUID]:
    return {notification.person_id for notification in react(uuid7(), event, roster).notifications}


def test_everyone_on_the_roster_is_told_once_each_with_a_text_and_a_reference() -> None:
    grace, alan = uuid7(), uuid7()
    event_id = uuid7()

    reaction = react(event_id, completed(2), after(added(1, grace), added(2, alan)))

    assert [notification.person_id for notification in reaction.notifications] == [grace, alan]
    for notification in reaction.notifications:
        assert (notification.event_id, notification.event_type) == (event_id, "labour.completed")
        assert "Ada" in notification.body
        assert notification.segments == 1
    assert len({notification.body for notification in reaction.notifications}) == 2  # the references differ


def test_a_birth_with_a_name_says_it() -> None:
    [notification] = react(uuid7(), completed(1, "Ida"), after(added(1))).notifications

    assert "Ada has given birth to Ida." in notification.body


def test_the_beginning_has_a_text_of_its_own() -> None:
    event = LabourBegun(labour_id=LABOUR, roster_version=1, mother_name="Ada", begun_at=NOW)

    [notification] = react(uuid7(), event, after(added(1))).notifications

    assert "in labour" in notification.body


def test_an_announcement_says_what_was_announced_and_who_says_it() -> None:
    event = LabourAnnounced(
        labour_id=LABOUR, roster_version=1, mother_name="Ada", text="Nearly there… it\u2019s close!"
    )

    [notification] = react(uuid7(), event, after(added(1))).notifications

    assert notification.body.startswith('FernLabour: Ada says: "Nearly there... it\'s close!" Reply STOP to stop. #')
    assert notification.segments == 1


def test_an_event_made_under_a_newer_roster_is_early() -> None:
    reaction = react(uuid7(), completed(2), after(added(1)))

    assert reaction.early
    assert reaction.notifications == ()


def test_a_person_added_after_the_event_is_not_told() -> None:
    early, late = uuid7(), uuid7()

    assert told(after(added(1, early), added(2, late)), completed(1)) == {early}


def test_a_person_removed_before_the_event_is_not_told() -> None:
    gone, here = uuid7(), uuid7()

    assert told(after(added(1, gone), added(2, here), removed(3, gone)), completed(3)) == {here}


def test_a_roster_change_waits_for_the_one_before_it() -> None:
    assert react(uuid7(), added(3), after(added(1))).early
    assert not react(uuid7(), added(2), after(added(1))).early


def test_a_roster_change_that_is_already_applied_changes_nothing() -> None:
    roster = after(added(1), added(2))

    reaction = react(uuid7(), added(1), roster)

    assert (reaction.roster, reaction.early) == (roster, False)


def test_an_event_without_a_reaction_is_a_programming_error() -> None:
    with pytest.raises(TypeError):
        react(uuid7(), InviteRevoked(labour_id=LABOUR, invite_id=uuid7()), Roster(LABOUR))


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_in_any_order_of_arrival_the_same_people_are_told(adds: list[bool], shuffled: random.Random) -> None:
    history, present = list[Event](), list[UUID]()
    for add in adds:
        if add or not present:
            present.append(uuid7())
            history.append(added(len(history) + 1, present[-1]))
        else:
            history.append(removed(len(history) + 1, present.pop(0)))
    final = completed(len(history))
    expected = told(after(*history), final)

    waiting, roster, told_out_of_order = [*history, final], Roster(LABOUR), set[UUID]()
    shuffled.shuffle(waiting)
    while waiting:  # as a bus does: an early event is delivered again later
        event = waiting.pop(0)
        reaction = react(uuid7(), event, roster)
        roster = reaction.roster
        told_out_of_order |= {notification.person_id for notification in reaction.notifications}
        if reaction.early:
            waiting.append(event)

    assert told_out_of_order == expected == set(present)


@given(st.uuids(), st.text(), st.text())
def test_a_derived_id_is_a_uuid_of_version_7_with_the_time_of_its_cause(cause: UUID, one: str, other: str) -> None:
    derived = derived_id(cause, one)

    assert (derived.version, derived.variant) == (7, RFC_4122)
    assert derived.int >> 80 == cause.int >> 80
    assert derived == derived_id(cause, one)
    assert (derived == derived_id(cause, other)) == (one == other)

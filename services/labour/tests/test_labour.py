"""The rules of a labour, without a database."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from contracts.events import (
    LabourAnnounced,
    LabourBegun,
    LabourCompleted,
    LabourCompletedV2,
    SubscriberAdded,
    SubscriberRemoved,
)
from labour.domain import errors
from labour.domain.contraction import Phase
from labour.domain.labour import CONTRACTION_LIMIT, EVER_LIMIT, Labour
from labour.domain.subscriber import PEOPLE_LIMIT, REQUEST_LIMIT, ROSTER_LIMIT
from labour.domain.update import LONGEST_COOLDOWN, UpdateKind, cooldown_after
from tests.labour_parts import MINUTE, NOW, SECOND, a_contraction, events_of, planned

TOKEN = "a-long-and-random-token"


def begun() -> Labour:
    labour = planned()
    labour.begin(NOW)
    return labour


def complete() -> Labour:
    labour = begun()
    labour.complete(NOW)
    return labour


def test_beginning_is_recorded_with_the_roster_it_was_made_under() -> None:
    labour = planned()
    labour.subscribe(name="Grace", phone="+12025550123", at=NOW)
    labour.collect()

    labour.begin(NOW)

    assert labour.phase is Phase.EARLY
    assert events_of(labour) == [LabourBegun(labour_id=labour.id, roster_version=1, mother_name="Ada", begun_at=NOW)]


@pytest.mark.parametrize("make", [planned, begun])
def test_a_labour_can_be_completed_from_any_phase_before(make: Callable[[], Labour]) -> None:
    labour = make()
    labour.collect()

    labour.complete(NOW)

    assert (labour.phase, labour.completed_at) == (Phase.COMPLETE, NOW)
    assert events_of(labour) == [
        LabourCompleted(labour_id=labour.id, roster_version=0, mother_name="Ada", completed_at=NOW)
    ]


def test_a_birth_is_recorded_as_version_2_only_if_the_baby_has_a_name() -> None:
    labour = planned()
    labour.collect()

    labour.complete(NOW, baby_name="Ida")

    [event] = events_of(labour)
    assert event == LabourCompletedV2(
        labour_id=labour.id, roster_version=0, mother_name="Ada", completed_at=NOW, baby_name="Ida"
    )


@pytest.mark.parametrize(
    ("make", "verb", "error"),
    [
        (begun, lambda labour: labour.begin(NOW), errors.LabourAlreadyBegun),
        (complete, lambda labour: labour.begin(NOW), errors.LabourAlreadyCompleted),
        (complete, lambda labour: labour.complete(NOW), errors.LabourAlreadyCompleted),
        (
            complete,
            lambda labour: labour.subscribe(name="G", phone="+12025550123", at=NOW),
            errors.LabourAlreadyCompleted,
        ),
        (complete, lambda labour: labour.post(UpdateKind.ANNOUNCEMENT, "More!", NOW), errors.LabourAlreadyCompleted),
        (planned, lambda labour: labour.unsubscribe(uuid4(), NOW), errors.NotSubscribed),
    ],
)
def test_what_is_refused_changes_and_records_nothing(
    make: Callable[[], Labour], verb: Callable[[Labour], None], error: type[errors.LabourError]
) -> None:
    labour = make()
    labour.collect()
    before = dict(labour.__dict__)

    with pytest.raises(error):
        verb(labour)

    assert labour.__dict__ == before
    assert events_of(labour) == []


def test_a_phone_is_subscribed_once_and_again_after_leaving() -> None:
    labour = planned()
    grace = labour.subscribe(name="Grace", phone="+12025550123", at=NOW)
    with pytest.raises(errors.AlreadySubscribed):
        labour.subscribe(name="Grace again", phone="+12025550123", at=NOW)

    labour.unsubscribe(grace.id, NOW)
    again = labour.subscribe(name="Grace", phone="+12025550123", at=NOW)

    assert [type(event) for event in events_of(labour)] == [SubscriberAdded, SubscriberRemoved, SubscriberAdded]
    assert again.id != grace.id


def test_a_person_is_added_in_the_name_of_the_mother_so_that_they_can_be_asked_for_consent() -> None:
    labour = planned()
    labour.collect()

    labour.subscribe(name="Grace", phone="+12025550123", at=NOW)

    [added] = events_of(labour)
    assert isinstance(added, SubscriberAdded)
    assert added.mother_name == labour.mother_name


def test_an_announcement_is_recorded_and_the_next_has_to_wait_ten_seconds() -> None:
    labour = begun()
    labour.collect()

    labour.post(UpdateKind.ANNOUNCEMENT, "Nearly there!", NOW)
    with pytest.raises(errors.TooSoon) as refused:
        labour.post(UpdateKind.ANNOUNCEMENT, "Really!", NOW + 4 * SECOND)
    labour.post(UpdateKind.ANNOUNCEMENT, "Any moment now.", NOW + 10 * SECOND)

    assert refused.value.wait == 6 * SECOND
    assert [event.text for event in events_of(labour) if isinstance(event, LabourAnnounced)] == [
        "Nearly there!",
        "Any moment now.",
    ]


def test_the_wait_doubles_with_each_announcement_up_to_ten_minutes() -> None:
    waits = [cooldown_after(number).total_seconds() for number in range(1, 9)]
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]
    assert cooldown_after(1_000_000) == LONGEST_COOLDOWN

    labour, at = begun(), NOW
    for wait in waits:
        labour.post(UpdateKind.ANNOUNCEMENT, "Soon.", at)
        at += wait * SECOND
        with pytest.raises(errors.TooSoon, match="Wait 1 s "):
            labour.post(UpdateKind.ANNOUNCEMENT, "Sooner.", at - SECOND)


def test_adding_and_removing_does_not_make_room_for_more_people_than_a_labour_may_ever_have() -> None:
    labour = planned()
    labour.invite(token=TOKEN, expires_at=NOW + MINUTE, at=NOW)
    for number in range(REQUEST_LIMIT):
        added = labour.subscribe(name="Grace", phone=f"+1202555{number:04}", at=NOW)
        labour.unsubscribe(added.id, NOW)

    with pytest.raises(errors.TooMany, match=r"at most 100 people\. Ask the mother"):
        labour.request(token=TOKEN, user_id="alan", name="Alan", phone="+12125550123", at=NOW)
    for number in range(ROSTER_LIMIT):  # the mother's own places
        added = labour.subscribe(name="Grace", phone=f"+1212555{number:04}", at=NOW)
        labour.unsubscribe(added.id, NOW)
    with pytest.raises(errors.TooMany, match="at most 150 people"):
        labour.subscribe(name="One too many", phone="+13125550123", at=NOW)
    assert len(labour.subscribers) == PEOPLE_LIMIT


def test_deleting_and_adding_contractions_is_bounded_too() -> None:
    """A deleted contraction stays in the statistics, and each start is an event."""
    labour = begun()
    for _ in range(EVER_LIMIT):
        contraction = labour.start_contraction(NOW, NOW)
        labour.delete_contraction(contraction.id, NOW)

    with pytest.raises(errors.TooMany, match="at most 3000 contractions"):
        labour.start_contraction(NOW, NOW)


def test_contractions_at_a_time_are_bounded_and_deleting_one_makes_room() -> None:
    labour = begun()
    long_ago = NOW - 2 * CONTRACTION_LIMIT * MINUTE
    labour.contractions = [a_contraction(long_ago + number * MINUTE, SECOND) for number in range(CONTRACTION_LIMIT)]

    with pytest.raises(errors.TooMany, match="at most 1000 contractions"):
        labour.start_contraction(NOW, NOW)
    labour.delete_contraction(labour.contractions[0].id, NOW)
    labour.start_contraction(NOW, NOW)


def test_invites_are_bounded_at_a_time_and_in_all() -> None:
    labour = planned()
    for _ in range(20):
        labour.invite(token=TOKEN, expires_at=NOW + MINUTE, at=NOW)

    with pytest.raises(errors.TooMany, match="at most 20 valid invites"):
        labour.invite(token=TOKEN, expires_at=NOW + MINUTE, at=NOW)
    for number in range(1, 5):  # the others have expired
        for _ in range(20):
            labour.invite(token=TOKEN, expires_at=NOW + (number + 1) * MINUTE, at=NOW + number * MINUTE)
    with pytest.raises(errors.TooMany, match="at most 100 invites"):
        labour.invite(token=TOKEN, expires_at=NOW + 9 * MINUTE, at=NOW + 8 * MINUTE)


def test_a_roster_has_a_limit() -> None:
    labour = planned()
    for number in range(ROSTER_LIMIT):
        labour.subscribe(name="Grace", phone=f"+1202555{number:04}", at=NOW)

    with pytest.raises(errors.RosterFull):
        labour.subscribe(name="One too many", phone="+12125550123", at=NOW)


def test_events_are_handed_over_once() -> None:
    labour = begun()

    assert len(labour.collect()) == 2
    assert labour.collect() == []

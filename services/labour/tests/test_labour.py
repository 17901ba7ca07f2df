"""The rules of a labour, without a database."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from contracts.events import LabourAnnounced, LabourBegun, LabourCompleted, SubscriberAdded, SubscriberRemoved
from labour.domain import errors
from labour.domain.contraction import Phase
from labour.domain.labour import ANNOUNCEMENT_COOLDOWN, Labour
from labour.domain.subscriber import ROSTER_LIMIT
from labour.domain.update import UpdateKind
from tests.labour_parts import NOW, SECOND, events_of, planned


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


def test_an_announcement_is_recorded_and_the_next_has_to_wait_ten_seconds() -> None:
    labour = begun()
    labour.collect()

    labour.post(UpdateKind.ANNOUNCEMENT, "Nearly there!", NOW)
    with pytest.raises(errors.TooSoon) as refused:
        labour.post(UpdateKind.ANNOUNCEMENT, "Really!", NOW + 4 * SECOND)
    labour.post(UpdateKind.ANNOUNCEMENT, "Any moment now.", NOW + ANNOUNCEMENT_COOLDOWN)

    assert refused.value.wait == 6 * SECOND
    assert [event.text for event in events_of(labour) if isinstance(event, LabourAnnounced)] == [
        "Nearly there!",
        "Any moment now.",
    ]


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

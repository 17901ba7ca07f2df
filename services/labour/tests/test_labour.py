"""The rules of a labour, without a database."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.events import (
    LabourAnnounced,
    LabourBegun,
    LabourCompleted,
    LabourPlanned,
    SubscriberAdded,
    SubscriberRemoved,
)
from labour.domain.contraction import Phase
from labour.domain.errors import (
    AlreadySubscribed,
    LabourAlreadyBegun,
    LabourAlreadyCompleted,
    LabourError,
    NotSubscribed,
    RosterFull,
    TooSoon,
)
from labour.domain.labour import ANNOUNCEMENT_COOLDOWN, Labour
from labour.domain.subscriber import ROSTER_LIMIT
from labour.domain.update import UpdateKind

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def planned() -> Labour:
    return Labour(mother_id="ada", mother_name="Ada", at=NOW)


def begun() -> Labour:
    labour = planned()
    labour.begin(NOW)
    return labour


def complete() -> Labour:
    labour = begun()
    labour.complete(NOW)
    return labour


def events(labour: Labour) -> list[object]:
    """What happened after the planning."""
    return [recorded.event for recorded in labour.collect() if not isinstance(recorded.event, LabourPlanned)]


def test_beginning_is_recorded_with_the_roster_it_was_made_under() -> None:
    labour = planned()
    labour.subscribe(name="Grace", phone="+12025550123", at=NOW)
    labour.collect()

    labour.begin(NOW)

    assert labour.phase is Phase.EARLY
    assert events(labour) == [LabourBegun(labour_id=labour.id, roster_version=1, mother_name="Ada", begun_at=NOW)]


@pytest.mark.parametrize("make", [planned, begun])
def test_a_labour_can_be_completed_from_any_phase_before(make: Callable[[], Labour]) -> None:
    labour = make()
    labour.collect()

    labour.complete(NOW)

    assert (labour.phase, labour.completed_at) == (Phase.COMPLETE, NOW)
    assert events(labour) == [
        LabourCompleted(labour_id=labour.id, roster_version=0, mother_name="Ada", completed_at=NOW)
    ]


@pytest.mark.parametrize(
    ("make", "verb", "error"),
    [
        (begun, lambda labour: labour.begin(NOW), LabourAlreadyBegun),
        (complete, lambda labour: labour.begin(NOW), LabourAlreadyCompleted),
        (complete, lambda labour: labour.complete(NOW), LabourAlreadyCompleted),
        (complete, lambda labour: labour.subscribe(name="G", phone="+12025550123", at=NOW), LabourAlreadyCompleted),
        (complete, lambda labour: labour.post(UpdateKind.ANNOUNCEMENT, "More!", NOW), LabourAlreadyCompleted),
        (planned, lambda labour: labour.unsubscribe(uuid4(), NOW), NotSubscribed),
    ],
)
def test_what_is_refused_changes_and_records_nothing(
    make: Callable[[], Labour], verb: Callable[[Labour], None], error: type[LabourError]
) -> None:
    labour = make()
    labour.collect()
    before = dict(labour.__dict__)

    with pytest.raises(error):
        verb(labour)

    assert labour.__dict__ == before
    assert events(labour) == []


def test_a_phone_is_subscribed_once_and_again_after_leaving() -> None:
    labour = planned()
    grace = labour.subscribe(name="Grace", phone="+12025550123", at=NOW)
    with pytest.raises(AlreadySubscribed):
        labour.subscribe(name="Grace again", phone="+12025550123", at=NOW)

    labour.unsubscribe(grace.id, NOW)
    again = labour.subscribe(name="Grace", phone="+12025550123", at=NOW)

    assert [type(event) for event in events(labour)] == [SubscriberAdded, SubscriberRemoved, SubscriberAdded]
    assert again.id != grace.id


def test_an_announcement_is_recorded_and_the_next_has_to_wait_ten_seconds() -> None:
    labour = begun()
    labour.collect()

    labour.post(UpdateKind.ANNOUNCEMENT, "Nearly there!", NOW)
    with pytest.raises(TooSoon) as refused:
        labour.post(UpdateKind.ANNOUNCEMENT, "Really!", NOW + timedelta(seconds=4))
    labour.post(UpdateKind.ANNOUNCEMENT, "Any moment now.", NOW + ANNOUNCEMENT_COOLDOWN)

    assert refused.value.wait == timedelta(seconds=6)
    assert [event.text for event in events(labour) if isinstance(event, LabourAnnounced)] == [
        "Nearly there!",
        "Any moment now.",
    ]


def test_a_roster_has_a_limit() -> None:
    labour = planned()
    for number in range(ROSTER_LIMIT):
        labour.subscribe(name="Somebody", phone=f"+1202555{number:04}", at=NOW)

    with pytest.raises(RosterFull):
        labour.subscribe(name="One too many", phone="+12125550123", at=NOW)


def test_events_are_handed_over_once() -> None:
    labour = begun()

    assert len(labour.collect()) == 2
    assert labour.collect() == []


@given(st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 9)), max_size=40))
def test_roster_versions_have_no_gaps_whatever_happens(changes: list[tuple[str, int]]) -> None:
    labour = planned()
    for change, number in changes:
        try:
            if change == "add":
                labour.subscribe(name="Somebody", phone=f"+1202555010{number}", at=NOW)
            elif current := [one for one in labour.subscribers if one.is_current]:
                labour.unsubscribe(current[number % len(current)].id, NOW)
        except AlreadySubscribed:
            pass

    versions = [
        event.roster_version for event in events(labour) if isinstance(event, SubscriberAdded | SubscriberRemoved)
    ]
    assert versions == list(range(1, labour.roster_version + 1))

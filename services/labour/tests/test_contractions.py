"""The rules of contractions and the phases that follow from them, without a database."""

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts import events
from labour.domain import errors
from labour.domain.advice import advise
from labour.domain.contraction import Phase, phase_after
from labour.domain.labour import Labour
from tests.labour_parts import MINUTE, NOW, SECOND, a_contraction, events_of, planned


def kinds(labour: Labour) -> list[type]:
    return [type(event) for event in events_of(labour)]


def test_the_first_contraction_begins_a_planned_labour() -> None:
    labour = planned()

    contraction = labour.start_contraction(NOW, NOW)
    labour.end_contraction(contraction.id, NOW + MINUTE, 4, NOW + MINUTE)

    assert labour.phase is Phase.EARLY
    assert kinds(labour) == [events.LabourBegun, events.ContractionStarted, events.ContractionEnded]
    assert labour.version == 4


def test_one_contraction_at_a_time_and_none_running_at_the_end() -> None:
    labour = planned()
    running = labour.start_contraction(NOW, NOW)

    with pytest.raises(errors.ContractionRunning):
        labour.start_contraction(NOW + MINUTE, NOW + MINUTE)
    with pytest.raises(errors.ContractionRunning):
        labour.complete(NOW + MINUTE)
    labour.end_contraction(running.id, NOW + MINUTE, 5, NOW + MINUTE)
    labour.complete(NOW + 2 * MINUTE)

    with pytest.raises(errors.LabourAlreadyCompleted):
        labour.start_contraction(NOW + 3 * MINUTE, NOW + 3 * MINUTE)
    with pytest.raises(errors.LabourAlreadyCompleted):
        labour.delete_contraction(running.id, NOW + 3 * MINUTE)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (NOW, NOW),
        (NOW, NOW - SECOND),
        (NOW + 2 * MINUTE, NOW + 3 * MINUTE),
        (NOW - 30 * SECOND, NOW - 9 * MINUTE + SECOND),
        (NOW - timedelta(days=367), NOW - timedelta(days=367) + MINUTE),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), NOW),
    ],
    ids=["no length", "backwards", "to come", "over another's end", "long ago", "the year 1"],
)
def test_impossible_times_are_refused_and_leave_the_contraction_as_it_was(start: datetime, end: datetime) -> None:
    labour = planned(NOW - 20 * MINUTE)
    for minutes in (10, 5):
        begun = NOW - minutes * MINUTE
        one = labour.start_contraction(begun, begun)
        labour.end_contraction(one.id, begun + MINUTE, 5, begun + MINUTE)
    before = (one.started_at, one.ended_at, one.intensity)
    labour.collect()
    version = labour.version

    with pytest.raises(errors.ImpossibleTimes):
        labour.correct_contraction(one.id, NOW, started_at=start, ended_at=end)

    assert (one.started_at, one.ended_at, one.intensity) == before
    assert (kinds(labour), labour.version) == ([], version)


def test_contractions_can_be_corrected_and_deleted_and_a_running_one_only_gets_another_start() -> None:
    labour = planned()
    one = labour.start_contraction(NOW, NOW)
    with pytest.raises(errors.ContractionRunning):
        labour.correct_contraction(one.id, NOW, intensity=3)
    labour.correct_contraction(one.id, NOW, started_at=NOW - MINUTE)
    labour.end_contraction(one.id, NOW, 3, NOW)
    labour.correct_contraction(one.id, NOW, intensity=7)
    labour.delete_contraction(one.id, NOW)

    assert labour.contractions == []
    assert kinds(labour)[2:] == [
        events.ContractionCorrected,
        events.ContractionEnded,
        events.ContractionCorrected,
        events.ContractionDeleted,
    ]
    with pytest.raises(errors.NoSuchContraction):
        labour.end_contraction(uuid4(), NOW, 3, NOW)


@pytest.mark.parametrize(
    ("count", "intensity", "seconds", "expected"),
    [
        (5, 5, 59, Phase.EARLY),
        (5, 6, 59, Phase.EARLY),
        (5, 5, 60, Phase.EARLY),
        (5, 6, 60, Phase.ACTIVE),
        (5, 8, 89, Phase.ACTIVE),
        (5, 7, 90, Phase.ACTIVE),
        (5, 8, 90, Phase.TRANSITION),
        (4, 10, 120, Phase.EARLY),
        (9, 10, 120, Phase.TRANSITION),
    ],
)
def test_the_last_five_contractions_decide_about_the_phase(
    count: int, intensity: int, seconds: int, expected: Phase
) -> None:
    contractions = [
        a_contraction(NOW + number * 5 * MINUTE, timedelta(seconds=seconds), intensity) for number in range(count)
    ]

    assert phase_after(contractions, Phase.EARLY) is expected


@pytest.mark.parametrize("phase", [Phase.TRANSITION, Phase.PUSHING])
def test_weaker_contractions_never_lead_back(phase: Phase) -> None:
    weak = [a_contraction(NOW + number * 5 * MINUTE, MINUTE, 6) for number in range(5)]

    assert phase_after(weak, phase) is phase


def test_pushing_is_the_mothers_word_once_it_has_begun() -> None:
    labour = planned()
    with pytest.raises(errors.LabourNotBegun):
        labour.push(NOW)
    labour.begin(NOW)
    labour.collect()

    labour.push(NOW)
    labour.push(NOW)

    assert labour.phase is Phase.PUSHING
    assert kinds(labour) == [events.LabourPhaseChanged]


class AnyLabour(RuleBasedStateMachine):
    """No sequence of commands brings a labour into an impossible state."""

    def __init__(self) -> None:
        super().__init__()
        self.labour, self.now = planned(), NOW
        self.phases = [Phase.PLANNED]
        self.events: list[object] = [recorded.event for recorded in self.labour.collect()]

    def attempt(self, verb: object, *arguments: object, **named: object) -> None:
        try:
            verb(*arguments, **named)  # type: ignore[operator]
        except errors.LabourError:
            assert not self.labour.collect(), "a refusal recorded something"
        self.events += [recorded.event for recorded in self.labour.collect()]
        if self.labour.phase is not self.phases[-1]:
            self.phases.append(self.labour.phase)

    @rule(seconds=st.integers(1, 600))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def begin(self) -> None:
        self.attempt(self.labour.begin, self.now)

    @rule()
    def push(self) -> None:
        self.attempt(self.labour.push, self.now)

    @rule()
    def complete(self) -> None:
        self.attempt(self.labour.complete, self.now)

    @rule(ago=st.integers(-120, 1200))
    def start_contraction(self, ago: int) -> None:
        self.attempt(self.labour.start_contraction, self.now - timedelta(seconds=ago), self.now)

    @precondition(lambda self: self.labour.contractions)
    @rule(number=st.integers(0, 100), ago=st.integers(-120, 600), intensity=st.integers(0, 10))
    def end_contraction(self, number: int, ago: int, intensity: int) -> None:
        one = self.labour.contractions[number % len(self.labour.contractions)]
        self.attempt(self.labour.end_contraction, one.id, self.now - timedelta(seconds=ago), intensity, self.now)

    @precondition(lambda self: self.labour.contractions)
    @rule(number=st.integers(0, 100), start=st.integers(-120, 1200), end=st.integers(-120, 1200))
    def correct_contraction(self, number: int, start: int, end: int) -> None:
        one = self.labour.contractions[number % len(self.labour.contractions)]
        times = {"started_at": self.now - timedelta(seconds=start), "ended_at": self.now - timedelta(seconds=end)}
        self.attempt(self.labour.correct_contraction, one.id, self.now, **times)

    @precondition(lambda self: self.labour.contractions)
    @rule(number=st.integers(0, 100))
    def delete_contraction(self, number: int) -> None:
        one = self.labour.contractions[number % len(self.labour.contractions)]
        self.attempt(self.labour.delete_contraction, one.id, self.now)

    @invariant()
    def phases_only_go_forward(self) -> None:
        assert all(before.is_before(after) for before, after in pairwise(self.phases))

    @invariant()
    def contractions_do_not_overlap_and_at_most_one_runs(self) -> None:
        ordered = sorted(self.labour.contractions, key=lambda one: one.started_at)
        assert sum(one.is_running for one in ordered) <= 1
        assert not any(before.overlaps(after) for before, after in pairwise(ordered))

    @invariant()
    def a_complete_labour_has_no_running_contraction_and_is_complete_once(self) -> None:
        completed = sum(isinstance(event, events.LabourCompleted) for event in self.events)
        assert completed == (self.labour.phase is Phase.COMPLETE)
        assert not (completed and any(one.is_running for one in self.labour.contractions))

    @invariant()
    def a_labour_begins_once_and_every_event_is_a_version(self) -> None:
        begun = sum(isinstance(event, events.LabourBegun) for event in self.events)
        assert begun == (self.labour.begun_at is not None)
        assert self.labour.version == len(self.events)

    @invariant()
    def advice_can_always_be_given(self) -> None:
        advise(self.labour.contractions, first_labour=True, now=self.now)


AnyLabour.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyLabour = AnyLabour.TestCase

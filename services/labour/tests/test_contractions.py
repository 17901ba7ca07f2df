"""Contractions: their rules, the phases they lead to, and what they advise. No database here."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.events import (
    ContractionCorrected,
    ContractionDeleted,
    ContractionEnded,
    ContractionStarted,
    LabourBegun,
    LabourCompleted,
    LabourPhaseChanged,
    LabourPlanned,
)
from labour.domain.advice import advise
from labour.domain.contraction import Phase, phase_after
from labour.domain.errors import (
    ContractionRunning,
    ImpossibleTimes,
    LabourAlreadyCompleted,
    LabourError,
    LabourNotBegun,
    NoSuchContraction,
)
from labour.domain.labour import Labour
from tests.labour_parts import a_contraction

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def kinds(labour: Labour) -> list[type]:
    """What happened after the planning."""
    return [type(one.event) for one in labour.collect() if not isinstance(one.event, LabourPlanned)]


def test_the_first_contraction_begins_a_planned_labour() -> None:
    labour = Labour(mother_id="ada", mother_name="Ada", at=NOON)

    contraction = labour.start_contraction(NOON, NOON)
    labour.end_contraction(contraction.id, NOON + MINUTE, 4, NOON + MINUTE)

    assert labour.phase is Phase.EARLY
    assert kinds(labour) == [LabourBegun, ContractionStarted, ContractionEnded]
    assert labour.version == 4


def test_one_contraction_at_a_time_and_none_running_at_the_end() -> None:
    labour = Labour(mother_id="ada", mother_name="Ada", at=NOON)
    running = labour.start_contraction(NOON, NOON)

    with pytest.raises(ContractionRunning):
        labour.start_contraction(NOON + MINUTE, NOON + MINUTE)
    with pytest.raises(ContractionRunning):
        labour.complete(NOON + MINUTE)
    labour.end_contraction(running.id, NOON + MINUTE, 5, NOON + MINUTE)
    labour.complete(NOON + 2 * MINUTE)

    with pytest.raises(LabourAlreadyCompleted):
        labour.start_contraction(NOON + 3 * MINUTE, NOON + 3 * MINUTE)
    with pytest.raises(LabourAlreadyCompleted):
        labour.delete_contraction(running.id, NOON + 3 * MINUTE)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (NOON, NOON),
        (NOON, NOON - SECOND),
        (NOON + 2 * MINUTE, NOON + 3 * MINUTE),
        (NOON - 30 * SECOND, NOON - 9 * MINUTE + SECOND),
    ],
    ids=["no length", "backwards", "to come", "over another's end"],
)
def test_impossible_times_are_refused_and_leave_the_contraction_as_it_was(start: datetime, end: datetime) -> None:
    labour = Labour(mother_id="ada", mother_name="Ada", at=NOON - 20 * MINUTE)
    for minutes in (10, 5):
        begun = NOON - minutes * MINUTE
        one = labour.start_contraction(begun, begun)
        labour.end_contraction(one.id, begun + MINUTE, 5, begun + MINUTE)
    before = (one.started_at, one.ended_at, one.intensity)
    labour.collect()
    version = labour.version

    with pytest.raises(ImpossibleTimes):
        labour.correct_contraction(one.id, NOON, started_at=start, ended_at=end)

    assert (one.started_at, one.ended_at, one.intensity) == before
    assert (kinds(labour), labour.version) == ([], version)


def test_contractions_can_be_corrected_and_deleted_and_a_running_one_only_gets_another_start() -> None:
    labour = Labour(mother_id="ada", mother_name="Ada", at=NOON)
    one = labour.start_contraction(NOON, NOON)
    with pytest.raises(ContractionRunning):
        labour.correct_contraction(one.id, NOON, intensity=3)
    labour.correct_contraction(one.id, NOON, started_at=NOON - MINUTE)
    labour.end_contraction(one.id, NOON, 3, NOON)
    labour.correct_contraction(one.id, NOON, intensity=7)
    labour.delete_contraction(one.id, NOON)

    assert labour.contractions == []
    assert kinds(labour)[2:] == [ContractionCorrected, ContractionEnded, ContractionCorrected, ContractionDeleted]
    with pytest.raises(NoSuchContraction):
        labour.end_contraction(uuid4(), NOON, 3, NOON)


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
        a_contraction(NOON + number * 5 * MINUTE, timedelta(seconds=seconds), intensity) for number in range(count)
    ]

    assert phase_after(contractions, Phase.EARLY) is expected


@pytest.mark.parametrize("phase", [Phase.TRANSITION, Phase.PUSHING])
def test_weaker_contractions_never_lead_back(phase: Phase) -> None:
    weak = [a_contraction(NOON + number * 5 * MINUTE, MINUTE, 6) for number in range(5)]

    assert phase_after(weak, phase) is phase


def test_pushing_is_the_mothers_word_once_it_has_begun() -> None:
    labour = Labour(mother_id="ada", mother_name="Ada", at=NOON)
    with pytest.raises(LabourNotBegun):
        labour.push(NOON)
    labour.begin(NOON)
    labour.collect()

    labour.push(NOON)
    labour.push(NOON)

    assert labour.phase is Phase.PUSHING
    assert kinds(labour) == [LabourPhaseChanged]


class AnyLabour(RuleBasedStateMachine):
    """Whatever people try, in any order, no labour gets into a state that cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.labour, self.now = Labour(mother_id="ada", mother_name="Ada", at=NOON), NOON
        self.phases = [Phase.PLANNED]
        self.events: list[object] = [recorded.event for recorded in self.labour.collect()]

    def attempt(self, verb: object, *arguments: object, **named: object) -> None:
        try:
            verb(*arguments, **named)  # type: ignore[operator]
        except LabourError:
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
        completed = sum(isinstance(event, LabourCompleted) for event in self.events)
        assert completed == (self.labour.phase is Phase.COMPLETE)
        assert not (completed and any(one.is_running for one in self.labour.contractions))

    @invariant()
    def a_labour_begins_once_and_every_event_is_a_version(self) -> None:
        begun = sum(isinstance(event, LabourBegun) for event in self.events)
        assert begun == (self.labour.begun_at is not None)
        assert self.labour.version == len(self.events)

    @invariant()
    def advice_can_always_be_given(self) -> None:
        advise(self.labour.contractions, first_labour=True, now=self.now)


AnyLabour.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyLabour = AnyLabour.TestCase

"""The statistics of a labour, kept as balances: what an event adds to them, and what they say.

An event adds postings: an amount for each balance that it changes. A balance is the sum of its postings, and nothing else.

Events arrive in any order, more than once. The postings of a contraction are the difference between the totals of all
contractions known before the event and after it. Differences that follow one another add up to the last totals, so the order
does not matter, as long as what is known in the end does not depend on it: of each contraction the newest event counts
(`KnownContraction.order`), and an older one that arrives later adds nothing. A phase is entered once, so its posting needs no
other event.

| balance                  | amount                                                                              |
|--------------------------|-------------------------------------------------------------------------------------|
| `contractions`           | contractions that are not deleted                                                   |
| `finished`               | those of them that have ended                                                       |
| `length`                 | the sum of the lengths of the finished ones, in microseconds                        |
| `span`                   | from the start of the first contraction to the start of the last, in microseconds   |
| a phase, such as `early` | the time at which the labour entered it, in microseconds since 1970                 |

The intervals between contractions depend on neighbours, which a late event, a correction or a deletion changes. Their average
does not need them: n contractions have n - 1 intervals, from start to start, and together these are the span.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from uuid import UUID

from msgspec import Struct

from contracts.events import (
    ContractionCorrected,
    ContractionDeleted,
    ContractionEnded,
    ContractionStarted,
    Event,
    LabourBegun,
    LabourCompleted,
    LabourPhaseChanged,
)
from labour.domain.contraction import Phase

ContractionEvent = ContractionStarted | ContractionEnded | ContractionCorrected | ContractionDeleted

TOPICS = (
    ContractionStarted.type,
    ContractionEnded.type,
    ContractionCorrected.type,
    ContractionDeleted.type,
    LabourBegun.type,
    LabourPhaseChanged.type,
    LabourCompleted.type,
)
PHASES = (Phase.EARLY, Phase.ACTIVE, Phase.TRANSITION, Phase.PUSHING)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Stage(IntEnum):
    """How far a contraction is. The stage never goes back, so the type of an event tells whether another one is newer."""

    STARTED = 0
    START_CORRECTED = 1
    ENDED = 2
    CORRECTED = 3
    DELETED = 4


class KnownContraction(Struct, frozen=True):
    """A contraction after its newest known event. A deleted one is kept, without times: its older events may still arrive.

    `sequence` is that of the event. It orders the corrections of one stage; the clocks of two processes do not. It is 0 for an
    event that was recorded without one.
    """

    id: UUID
    labour_id: UUID
    started_at: datetime | None
    ended_at: datetime | None
    stage: int
    sequence: int
    event_id: UUID

    @property
    def order(self) -> tuple[int, int, UUID]:
        return self.stage, self.sequence, self.event_id


class Posting(Struct, frozen=True):
    """An amount that an event adds to the balance `what`. Event and `what` are the key, so an event adds to a balance once."""

    event_id: UUID
    what: str
    labour_id: UUID
    amount: int


class Reaction(Struct, frozen=True):
    """`contraction` is None if the event says nothing new about a contraction. There is at least one posting, if only of 0."""

    postings: list[Posting]
    contraction: KnownContraction | None = None


class PhaseTime(Struct, frozen=True):
    phase: Phase
    entered_at: datetime
    seconds: float


class Statistics(Struct, frozen=True):
    """For the mother and birth partners. An average is null until there is something to average: one finished contraction, or two
    starts. The current phase counts until now.
    """

    contractions: int
    average_length_seconds: float | None
    average_interval_seconds: float | None
    phases: list[PhaseTime]


def react(event_id: UUID, sequence: int | None, event: Event, known: Mapping[UUID, KnownContraction]) -> Reaction:
    """`known` has all known contractions of the event's labour, by their ids."""
    match event:
        case LabourBegun():
            return Reaction([_entered(event_id, event, Phase.EARLY, event.begun_at)])
        case LabourPhaseChanged():
            return Reaction([_entered(event_id, event, event.phase, event.changed_at)])
        case LabourCompleted():
            return Reaction([_entered(event_id, event, Phase.COMPLETE, event.completed_at)])
        case ContractionStarted() | ContractionEnded() | ContractionCorrected() | ContractionDeleted():
            heard = _heard(event_id, sequence or 0, event)
            before = known.get(heard.id)
            if before is not None and before.order >= heard.order:
                return Reaction(_postings(event_id, event, {}))
            old, new = totals(known.values()), totals({**known, heard.id: heard}.values())
            return Reaction(_postings(event_id, event, {what: new[what] - old[what] for what in new}), heard)
        case _:
            raise TypeError(f"no statistics of {event.type}: remove it from TOPICS or add a case here")


def totals(contractions: Iterable[KnownContraction]) -> dict[str, int]:
    times = [(one.started_at, one.ended_at) for one in contractions if one.started_at is not None]
    starts = [start for start, _ in times]
    lengths = [end - start for start, end in times if end is not None]
    return {
        "contractions": len(starts),
        "finished": len(lengths),
        "length": sum(lengths, timedelta()) // _MICROSECOND,
        "span": (max(starts) - min(starts)) // _MICROSECOND if starts else 0,
    }


def summarize(balances: Mapping[str, int], now: datetime) -> Statistics:
    """The statistics that follow from the balances of a labour. A missing balance is 0. A phase ends when the next known one
    begins.
    """
    contractions, finished = balances.get("contractions", 0), balances.get("finished", 0)
    times = {phase: balances.get(phase, 0) for phase in (*PHASES, Phase.COMPLETE)}
    entered = [(phase, _EPOCH + time * _MICROSECOND) for phase, time in times.items() if time]
    ends = [at for _, at in entered[1:]] + [now]
    return Statistics(
        contractions,
        balances["length"] / finished / 1_000_000 if finished else None,
        balances.get("span", 0) / (contractions - 1) / 1_000_000 if contractions > 1 else None,
        [
            PhaseTime(phase, at, max(0.0, (end - at).total_seconds()))  # the clocks of two processes may differ
            for (phase, at), end in zip(entered, ends, strict=False)
            if phase is not Phase.COMPLETE
        ],
    )


def _entered(event_id: UUID, event: Event, phase: str, at: datetime) -> Posting:
    return Posting(event_id, str(phase), event.labour_id, (at - _EPOCH) // _MICROSECOND)


def _postings(event_id: UUID, event: Event, amounts: Mapping[str, int]) -> list[Posting]:
    """A posting for each amount that is not 0, and always one for `contractions`: it shows that the event was counted."""
    changed = {"contractions": 0} | {what: amount for what, amount in amounts.items() if amount}
    return [Posting(event_id, what, event.labour_id, amount) for what, amount in changed.items()]


def _heard(event_id: UUID, sequence: int, event: ContractionEvent) -> KnownContraction:
    start: datetime | None = None
    end: datetime | None = None
    match event:
        case ContractionStarted():
            stage, start = Stage.STARTED, event.started_at
        case ContractionEnded():
            stage, start, end = Stage.ENDED, event.started_at, event.ended_at
        case ContractionCorrected():
            stage = Stage.START_CORRECTED if event.ended_at is None else Stage.CORRECTED
            start, end = event.started_at, event.ended_at
        case ContractionDeleted():
            stage = Stage.DELETED
    return KnownContraction(event.contraction_id, event.labour_id, start, end, stage, sequence, event_id)

"""Contractions, and the phase of a labour that they indicate."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import fmean
from uuid import UUID

from uuid_utils.compat import uuid7

LAST = 5  # finished contractions that decide about the phase
OLDEST = timedelta(days=366)
CLOCK_TOLERANCE = timedelta(minutes=1)  # how far a client's clock may be ahead of ours


class Phase(StrEnum):
    """The phases of a labour, in order. A labour never goes back to an earlier phase."""

    PLANNED = "planned"
    EARLY = "early"
    ACTIVE = "active"
    TRANSITION = "transition"
    PUSHING = "pushing"
    COMPLETE = "complete"

    def is_before(self, other: "Phase") -> bool:
        order = list(Phase)
        return order.index(self) < order.index(other)


class Contraction:
    """A contraction, which runs until it has an end. `intensity`, from 0 to 10, is set with the end."""

    def __init__(self, started_at: datetime, ended_at: datetime | None = None, intensity: int | None = None) -> None:
        self.id: UUID = uuid7()
        self.started_at, self.ended_at, self.intensity = started_at, ended_at, intensity

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    def length(self, now: datetime) -> timedelta:
        """The time from the start to the end, or to `now` if the contraction is still running."""
        return (self.ended_at or now) - self.started_at

    def overlaps(self, other: "Contraction") -> bool:
        before, after = sorted((self, other), key=lambda one: one.started_at)
        return before.ended_at is None or before.ended_at > after.started_at


def problem_with_times(wanted: Contraction, others: Iterable[Contraction], now: datetime) -> str | None:
    """Why a contraction cannot have the times of `wanted` beside the `others`; None if it can."""
    if max(wanted.started_at, wanted.ended_at or wanted.started_at) > now + CLOCK_TOLERANCE:
        return "A contraction cannot be in the future. Check the times and the clock of your device."
    if wanted.started_at < now - OLDEST:
        return "A contraction cannot have started more than a year ago. Check the date."
    if wanted.ended_at is not None and wanted.ended_at <= wanted.started_at:
        return "A contraction must end after it started."
    if any(wanted.overlaps(other) for other in others):
        return "This overlaps with another contraction. Correct or delete the other one first."
    return None


def phase_after(contractions: Sequence[Contraction], phase: Phase) -> Phase:
    """The phase that the last five finished contractions indicate, if it is later than `phase`; otherwise `phase`.

    With fewer than five the phase does not change: a single strong contraction is no pattern.
    """
    finished = [one for one in contractions if one.ended_at is not None and one.intensity is not None]
    last = sorted(finished, key=lambda one: one.started_at)[-LAST:]
    if len(last) < LAST:
        return phase
    intensity = fmean(one.intensity or 0 for one in last)
    seconds = fmean(one.length(one.started_at).total_seconds() for one in last)
    if intensity >= 8 and seconds >= 90:
        reached = Phase.TRANSITION
    elif intensity >= 6 and seconds >= 60:
        reached = Phase.ACTIVE
    else:
        return phase
    return reached if phase.is_before(reached) else phase

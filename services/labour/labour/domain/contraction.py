"""Contractions and what they say about how far a labour is. Pure: times in, decisions out."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import fmean
from uuid import UUID

from uuid_utils.compat import uuid7

LOOKED_AT = 5  # how many of the last contractions decide about the phase


class Phase(StrEnum):
    """In the order in which a labour goes through them; never back."""

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
    """Running until it has an end; `intensity` from 0 to 10 is known at the end."""

    def __init__(self, *, started_at: datetime) -> None:
        self.id: UUID = uuid7()
        self.started_at = started_at
        self.ended_at: datetime | None = None
        self.intensity: int | None = None

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    def length(self, now: datetime) -> timedelta:
        """So far, if it is still running."""
        return (self.ended_at or now) - self.started_at

    def overlaps(self, other: "Contraction") -> bool:
        before, after = sorted((self, other), key=lambda one: one.started_at)
        return before.ended_at is None or before.ended_at > after.started_at


def phase_after(contractions: Sequence[Contraction], phase: Phase) -> Phase:
    """The phase that the last five finished contractions speak for, if it is further than the one we are in.

    Fewer than five decide nothing: a single strong one is no pattern.
    """
    finished = [one for one in contractions if one.ended_at is not None and one.intensity is not None]
    last = sorted(finished, key=lambda one: one.started_at)[-LOOKED_AT:]
    if len(last) < LOOKED_AT:
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

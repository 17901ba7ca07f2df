"""Advice to the mother, with its reason. It is computed from her contractions each time and never stored.

The rule of thumb for going to hospital is 5-1-1: contractions every 5 minutes, 1 minute long, for 1 hour; 3-1-1 for a first
labour, which usually takes longer. "For 1 hour" is an hour on the clock: the pattern must cover all of it, up to now. A running
contraction has no length yet, so it counts only as a start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import fmean

from labour.domain.contraction import Contraction

HOUR = timedelta(hours=1)
HALF_HOUR = timedelta(minutes=30)
MINUTE = timedelta(minutes=1)
LONG = timedelta(minutes=2)
MANY, MANY_WITHIN = 6, timedelta(minutes=10)


class Kind(StrEnum):
    CALL_MIDWIFE = "call-midwife"
    GO_TO_HOSPITAL = "go-to-hospital"
    PREPARE = "prepare"


@dataclass(frozen=True, slots=True)
class Advice:
    kind: Kind
    because: str


def advise(contractions: Sequence[Contraction], *, first_labour: bool, now: datetime) -> list[Advice]:
    """The advice that follows from the contractions, most urgent first; empty if there is none."""
    ordered = sorted((one for one in contractions if one.started_at <= now), key=lambda one: one.started_at)
    advice = []
    if because := _worrying(ordered, now):
        advice.append(Advice(Kind.CALL_MIDWIFE, because))
    every = timedelta(minutes=3 if first_labour else 5)
    if _holds(ordered, every, HOUR, now):
        advice.append(Advice(Kind.GO_TO_HOSPITAL, _pattern(every, "hour")))
    elif _holds(ordered, every, HALF_HOUR, now):
        advice.append(Advice(Kind.PREPARE, _pattern(every, "half hour")))
    return advice


def _worrying(ordered: Sequence[Contraction], now: datetime) -> str | None:
    recent = [one for one in ordered if one.started_at >= now - HOUR]
    if any(one.length(now) > LONG for one in recent):
        return "A contraction in the last hour took longer than two minutes."
    started = sum(one.started_at > now - MANY_WITHIN for one in ordered)
    return f"{started} contractions started in the last ten minutes." if started >= MANY else None


def _holds(ordered: Sequence[Contraction], every: timedelta, window: timedelta, now: datetime) -> bool:
    """Whether contractions started at least `every` so often during the whole window, and took a minute on average."""
    finished = [one for one in ordered if not one.is_running and one.started_at >= now - window - every]
    if len(finished) < 2 or finished[0].started_at > now - window:
        return False
    starts = [one.started_at for one in finished]
    starts += [one.started_at for one in ordered if one.is_running]
    gaps = [after - before for before, after in zip(starts, [*starts[1:], now], strict=True)]
    seconds = fmean(one.length(now).total_seconds() for one in finished)
    return max(gaps) <= every and seconds >= MINUTE.total_seconds()


def _pattern(every: timedelta, window: str) -> str:
    minutes = int(every.total_seconds() // 60)
    return f"For the last {window} contractions came at least every {minutes} minutes and took a minute or more."

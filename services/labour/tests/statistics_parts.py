"""Labours whose statistics are known, for the tests of the statistics."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from contracts.events import LabourPhaseChanged
from labour.domain.contraction import Phase
from labour.domain.errors import LabourError
from labour.domain.labour import Labour
from labour.domain.statistics import TOPICS, summarize
from messaging.aggregate import Recorded
from messaging.consumer import Received
from messaging.envelope import Envelope
from tests.labour_parts import NOW, SECOND, fetch, planned

END = NOW + timedelta(days=2)  # when the statistics are read; later than all that happens
BALANCES = "SELECT what, amount FROM statistics_balance WHERE labour_id = '{}'"
Step = tuple[str, int, int]  # a verb, a contraction and a number of seconds


class History:
    """A labour, and all that it recorded. A step that its rules refuse changes nothing."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.labour, self.now = planned(), NOW
        for step in steps:
            with suppress(LabourError):
                self._take(*step)
        self.recorded = [one for one in self.labour.collect() if one.event.type in TOPICS]

    def _take(self, verb: str, number: int, seconds: int) -> None:
        labour, self.now = self.labour, self.now + seconds * SECOND + timedelta(microseconds=number)
        match verb:
            case "start":
                labour.start_contraction(self.now, self.now)
            case "begin" | "push" | "complete":
                getattr(labour, verb)(self.now)
            case _:
                if not labour.contractions:
                    return
                one = labour.contractions[number % len(labour.contractions)]
                if verb == "end":
                    labour.end_contraction(one.id, self.now, number % 11, self.now)
                elif verb == "delete":
                    labour.delete_contraction(one.id, self.now)
                else:
                    end = one.ended_at and one.ended_at + number * SECOND
                    labour.correct_contraction(one.id, self.now, started_at=one.started_at - SECOND, ended_at=end)

    def statistics(self) -> dict[str, Any]:
        """Computed from the contractions and the times of the labour itself, and not as the projection does it."""
        starts = sorted(one.started_at for one in self.labour.contractions)
        lengths = [one.ended_at - one.started_at for one in self.labour.contractions if one.ended_at]
        entered = [(Phase.EARLY, self.labour.begun_at)] if self.labour.begun_at else []
        changes = [one.event for one in self.recorded if isinstance(one.event, LabourPhaseChanged)]
        entered += [(Phase(change.phase), change.changed_at) for change in changes]
        ends = [at for _, at in entered[1:]] + [self.labour.completed_at or END]
        return {
            "contractions": len(starts),
            "average_length_seconds": _average(lengths),
            "average_interval_seconds": _average([after - before for before, after in pairwise(starts)]),
            "phases": [
                (phase, at, (end - at).total_seconds()) for (phase, at), end in zip(entered, ends, strict=bool(entered))
            ],
        }


def _average(durations: Sequence[timedelta]) -> Any:
    """The average, to be compared approximately: the projection rounds at other places."""
    return pytest.approx((sum(durations, timedelta()) / len(durations)).total_seconds()) if durations else None


def received(recorded: Recorded) -> Received[Any]:
    sequence = recorded.sequence  # as the outbox numbers the events of an aggregate
    envelope = Envelope(recorded.id, "labour", "any", 1, "any", NOW, None, b"", sequence)
    return Received(recorded.id, envelope, recorded.event)


async def statistics_of(engine: AsyncEngine, labour: Labour) -> dict[str, Any]:
    seen = summarize(dict(await fetch(engine, BALANCES.format(labour.id))), END)
    return {**msgspec.structs.asdict(seen), "phases": [msgspec.structs.astuple(one) for one in seen.phases]}


def labour_with(*verbs: str) -> History:
    return History([(verb, 0, 60) for verb in verbs])

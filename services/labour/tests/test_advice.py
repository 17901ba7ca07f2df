"""The advice for a pattern of contractions, and its reason, without a database."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from labour.domain.advice import Advice, Kind, advise
from labour.domain.contraction import Contraction
from tests.labour_parts import MINUTE, NOW, a_contraction


def every(minutes: float, *, lasting: float = 60, until: datetime = NOW, hours: float = 1.2) -> list[Contraction]:
    """Contractions that start every so many minutes, the last one just before `until`."""
    number = int(hours * 60 / minutes)
    return [
        a_contraction(until - index * minutes * MINUTE - 2 * MINUTE, timedelta(seconds=lasting))
        for index in reversed(range(number))
    ]


def told(contractions: Sequence[Contraction], *, first: bool = False, now: datetime = NOW) -> list[Kind]:
    return [advice.kind for advice in advise(contractions, first_labour=first, now=now)]


@pytest.mark.parametrize(
    ("contractions", "first", "expected"),
    [
        pytest.param([], False, [], id="none"),
        pytest.param(every(5), False, [Kind.GO_TO_HOSPITAL], id="5-1-1"),
        pytest.param(every(5), True, [], id="5-1-1 in a first labour"),
        pytest.param(every(3), True, [Kind.GO_TO_HOSPITAL], id="3-1-1 in a first labour"),
        pytest.param(every(6), False, [], id="too far apart"),
        pytest.param(every(5, lasting=50), False, [], id="too short"),
        pytest.param(every(5, hours=0.7), False, [Kind.PREPARE], id="half an hour"),
        pytest.param(every(5, hours=0.4), False, [], id="not for long enough"),
        pytest.param(every(5, until=NOW - timedelta(hours=2)), False, [], id="long ago"),
        pytest.param(
            [*every(5), a_contraction(NOW - MINUTE, None)], False, [Kind.GO_TO_HOSPITAL], id="one still running"
        ),
        pytest.param(
            [a_contraction(NOW - 30 * MINUTE, timedelta(seconds=121))], False, [Kind.CALL_MIDWIFE], id="a long one"
        ),
        pytest.param(
            [a_contraction(NOW - 3 * MINUTE, None)], False, [Kind.CALL_MIDWIFE], id="a long one still running"
        ),
        pytest.param(
            [a_contraction(NOW - number * 1.5 * MINUTE, MINUTE) for number in range(1, 7)],
            False,
            [Kind.CALL_MIDWIFE],
            id="six in ten minutes",
        ),
        pytest.param(
            [a_contraction(NOW - number * 1.5 * MINUTE, MINUTE) for number in range(1, 6)],
            False,
            [],
            id="five in ten minutes",
        ),
    ],
)
def test_what_is_advised(contractions: list[Contraction], first: bool, expected: list[Kind]) -> None:
    assert told(contractions, first=first) == expected


def test_a_gap_in_the_hour_means_there_is_no_pattern() -> None:
    contractions = every(5)
    del contractions[len(contractions) // 2]

    assert Kind.GO_TO_HOSPITAL not in told(contractions)


def test_advice_says_why() -> None:
    [advice] = advise(every(5), first_labour=False, now=NOW)

    assert advice == Advice(
        Kind.GO_TO_HOSPITAL, "For the last hour contractions came at least every 5 minutes and took a minute or more."
    )

"""Each process is killed at each of its fault points and started again: nothing is lost, and everyone is told exactly once."""

from collections.abc import Callable
from functools import cache

import pytest

from e2e.experiments.crash_points import (
    CASES,
    PAGE,
    PROMISES,
    Observation,
    crash_at_every_point,
    page,
    rows_of_the_page,
)
from e2e.support.bus_tap import BusTap
from e2e.support.world import World
from messaging.faults import POINTS

Observations = dict[str, Observation]  # by fault point


@pytest.fixture(scope="module")
def observe(world: World) -> Callable[[str], Observations]:
    """Crashes a process at all of its points the first time it is asked for, and then remembers the observations."""
    tap = BusTap(world)
    return cache(lambda process: {seen.point: seen for seen in crash_at_every_point(world, tap, process)})


@pytest.mark.parametrize(("process", "point"), CASES)
def test_a_crash_loses_nothing_and_doubles_nothing(
    observe: Callable[[str], Observations], process: str, point: str
) -> None:
    seen = observe(process)[point]

    assert seen.violations == []
    assert seen.agrees_with(rows_of_the_page()[process, point]), seen


def test_every_point_has_its_row_and_every_row_its_point() -> None:
    assert PROMISES.keys() == POINTS.keys()
    assert {point for _, point in CASES} == POINTS.keys()
    assert PAGE.read_text() == page(rows_of_the_page()), "run `.venv/bin/python -m e2e.experiments.crash_points`"

"""Whether the machine is quiet and steady enough to compare anything on it.

The same amount of Python work is done before and after the run, once alone and once on every core at the same time. A machine
is too busy if the work waits for a core, and unsteady if the same work takes another amount of CPU time than before.
"""

import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

WORK = 4_000_000  # additions: a quarter of a second or so
REPEATS = 3
TOLERATED = 0.25


@dataclass(frozen=True, slots=True)
class Calibration:
    """`alone` and `together` are seconds of CPU time. `waited` is the share of the time that the work waited for a core."""

    alone: float
    together: float
    waited: float


def _work(amount: int) -> tuple[float, float]:
    """Seconds on the clock and of CPU time."""
    clock, cpu, total = time.perf_counter(), time.process_time(), 0
    for number in range(amount):
        total += number
    return time.perf_counter() - clock, time.process_time() - cpu


def calibrate(amount: int = WORK) -> Calibration:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        list(pool.map(_work, [1000] * cores))  # starts the processes
        alone = [pool.submit(_work, amount).result() for _ in range(REPEATS)]
        together = [one for _ in range(REPEATS) for one in pool.map(_work, [amount] * cores)]
    return Calibration(
        alone=statistics.median(cpu for _, cpu in alone),
        together=statistics.median(cpu for _, cpu in together),
        waited=1 - sum(cpu for _, cpu in together) / sum(clock for clock, _ in together),
    )


def doubts(before: Calibration, after: Calibration, tolerated: float = TOLERATED) -> list[str]:
    """Why ratios of this run mean little; empty if they can be trusted."""
    found = [
        f"{when} the run, work on every core waited {one.waited:.0%} of its time for a core"
        for when, one in (("before", before), ("after", after))
        if one.waited > tolerated
    ]
    for name in ("alone", "together"):
        change = getattr(after, name) / getattr(before, name) - 1
        if abs(change) > tolerated:
            found.append(f"the same work took {change:+.0%} CPU time after the run ({name})")
    return found

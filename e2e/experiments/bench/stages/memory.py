"""The resident size of every process of a system, at the start and after a while under a light load."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from e2e.experiments.bench.environment import Environment
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage
from e2e.experiments.bench.system import WORKERS, start_system

PAUSE = 0.25  # seconds between two labours
PROCESSES = ("labour-api", "notification-api", *(f"{service}-{role}" for service, role in WORKERS))


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    system = start_system(environment)
    load = environment.child("http_load")

    def play(labours: int) -> None:
        requests = [system.plan() for _ in range(labours)]
        load.ask(port=system.port, requests=requests, connections=1)

    def sizes() -> dict[str, float]:
        return {
            name: psutil.Process(process.pid).memory_info().rss / 2**20 for name, process in system.processes.items()
        }

    def measure(_: int) -> dict[str, Measured]:
        play(3)  # what is imported late or cached once is no growth
        system.until_idle()
        first, end = sizes(), time.monotonic() + options.seconds
        while time.monotonic() < end:
            play(1)
            time.sleep(PAUSE)
        system.until_idle()
        last = sizes()
        at_start = {f"{name} at the start": Measured(first[name]) for name in PROCESSES}
        return at_start | {name: Measured(last[name]) for name in PROCESSES}

    yield measure


STAGE = Stage(
    "memory",
    "resident size of each process after `--seconds` of light load, and its growth since the start",
    {name: Case(name, "MB", against=f"{name} at the start") for name in PROCESSES},
    start,
    rounds=1,
    warm_up=False,
)

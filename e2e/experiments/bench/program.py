"""`python -m e2e.experiments.bench.program MODULE LOG`: a measured program in a process of its own.

Reads one order a line from standard input, as JSON, passes it to `MODULE.measure`, and answers with one line. The process stays
alive between orders, so that imports and caches are warm. Standard output goes to the file LOG, as the logs of a service would.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import uvloop
from opentelemetry import trace

from e2e.experiments.bench.sampler import sampled
from servicekit import metrics_export, telemetry
from servicekit.logs import configure
from servicekit.process import collect_garbage_rarely


class Stopwatch:
    """Seconds on the clock, and seconds of CPU time of this process. Both include the sending of spans that were made."""

    def __init__(self) -> None:
        self._clock, self._cpu = time.perf_counter(), time.process_time()

    def read(self, count: int, **more: Any) -> dict[str, Any]:
        if flush := getattr(trace.get_tracer_provider(), "force_flush", None):  # there is an SDK
            flush()
        seconds, cpu = time.perf_counter() - self._clock, time.process_time() - self._cpu
        return {"count": count, "seconds": seconds, "cpu": cpu, **more}


async def serve(measure: Any, answers: TextIO) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        profile = order.pop("profile", None)
        with sampled(profile) if profile else nullcontext():
            result = await measure(**order)
        answers.write(json.dumps(result) + "\n")
        answers.flush()


def main(module: str, log: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    with Path(log).open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    configure("bench", "INFO")
    run = asyncio.run
    if ".articles." not in module:  # as the processes of the services do
        run = uvloop.run
        collect_garbage_rarely()
    monitored = bool(
        os.environ.get("MONITOR_PORT")
    )  # then every measurement has a second reader, which nothing asks here
    stop_traces, stop_metrics = telemetry.start("bench"), metrics_export.start("bench", monitored=monitored)
    run(serve(import_module(module).measure, answers))
    stop_traces()
    stop_metrics()


if __name__ == "__main__":
    main(*sys.argv[1:])

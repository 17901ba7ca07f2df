"""A sampling profiler: where the process is after each slice of CPU time, a few milliseconds long.

It costs next to nothing, and waiting does not count. (cProfile makes every call slower, and loses count when SQLAlchemy switches
greenlets.) What a function of C costs is the cost of the Python function that calls it.

python -m e2e.experiments.bench.sampler FILE MODULE …   runs a module, sampled from SIGUSR1 until its end
"""

import atexit
import json
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import greenlet  # type: ignore[import-untyped]

INTERVAL = 0.001  # seconds of CPU time; the system's clock may make it longer


class Sampler:
    def __init__(self) -> None:
        self._own, self._whole, self._samples = Counter[CodeType](), Counter[CodeType](), 0

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def write(self, path: str) -> None:
        """Write JSON: the number of samples, and for each function those in itself and those in all that it called."""
        functions = [
            {"file": code.co_filename, "line": code.co_firstlineno, "name": code.co_qualname, "own": self._own[code], "whole": n}
            for code, n in self._whole.items()
        ]  # fmt: skip
        Path(path).write_text(json.dumps({"samples": self._samples, "functions": functions}))

    def _sample(self, _: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self._samples += 1
        self._own[frame.f_code] += 1
        self._whole.update({one.f_code for one in _stack(frame)})


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """The callers, also those of the greenlet in which SQLAlchemy runs."""
    current = greenlet.getcurrent()
    while current is not None:
        while frame is not None:
            yield frame
            frame = frame.f_back
        current = current.parent
        frame = current.gr_frame if current is not None else None


@contextmanager
def sampled(path: str) -> Iterator[None]:
    sampler = Sampler()
    sampler.start()
    try:
        yield
    finally:
        sampler.stop()
        sampler.write(path)


def main() -> None:
    _, path, module, *arguments = sys.argv
    sampler = Sampler()
    signal.signal(signal.SIGUSR1, lambda *_: sampler.start())
    atexit.register(sampler.write, path)
    atexit.register(sampler.stop)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

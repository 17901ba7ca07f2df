"""Lines of the log at INFO, like that of the consumer for each batch, to a file as a service writes them."""

from typing import Any

from structlog import get_logger

from e2e.experiments.bench.program import Stopwatch

log = get_logger()


async def measure(*, count: int) -> dict[str, Any]:
    watch = Stopwatch()
    for _ in range(count):
        log.info("batch handled", consumer="notification", events=250, early=0, granted=250)
    return watch.read(count)

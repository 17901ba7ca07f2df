"""Counters of the metrics, kept as plain numbers that the SDK reads when it exports them.

An addition takes 0.2 µs. A counter of the SDK takes 4 µs, because it checks and hashes the labels of each addition: too much
beside a transaction that records two outcomes.
"""

from collections.abc import Iterable, Mapping

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

_NONE: Mapping[str, str] = {}


class Counter:
    """A counter of this process. Call sites pass the same labels in the same order."""

    def __init__(self, name: str, description: str) -> None:
        self._values = dict[tuple[tuple[str, str], ...], int]()
        metrics.get_meter("fernlabour").create_observable_counter(name, [self._observe], description=description)

    def add(self, count: int, labels: Mapping[str, str] = _NONE) -> None:
        series = tuple(labels.items())
        self._values[series] = self._values.get(series, 0) + count

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, dict(series)) for series, value in list(self._values.items())]

"""Evaluates the PromQL of our alerts on samples in memory, as Prometheus does. promql-parser reads the query.

Only what the alerts use is there: selectors, `increase`, `changes`, `absent`, `sum` and `max`, arithmetic, comparison, `and`,
`or`, `unless`, subqueries. Everything else raises `Unsupported`, so that a new alert cannot be evaluated wrongly. Where
`promtool` is installed, a test compares both.
"""

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import promql_parser as promql

LOOKBACK = 300.0  # seconds for which the last sample of a series counts

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Points = Sequence[tuple[float, float]]  # time and value
Ranges = dict[Labels, Points]

_COMPARE: dict[str, Callable[[float, float], bool]] = {">": operator.gt, "<": operator.lt}
_COMPUTE: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda one, other: one / other if other else float("nan") if not one else float("inf") * one,
}
_AGGREGATE: dict[str, Callable[[Iterable[float]], float]] = {"sum": sum, "max": max}


class Unsupported(Exception):
    pass


class Samples:
    """The series of some metrics. Of a series that a scrape does not have any more, no value is found from then on."""

    def __init__(self, names: Iterable[str]) -> None:
        self._series: dict[str, dict[Labels, tuple[list[float], list[float | None]]]] = {name: {} for name in names}

    def scraped(self, at: float, values: Iterable[tuple[str, Mapping[str, str], float]]) -> None:
        """All values that one scrape of all targets has found."""
        seen = set[tuple[str, Labels]]()
        for name, labels, value in values:
            if name in self._series:
                key = frozenset(labels.items())
                self._append(name, key, at, value)
                seen.add((name, key))
        for name, series in self._series.items():
            for key, (_, found) in series.items():
                if (name, key) not in seen and found[-1] is not None:
                    self._append(name, key, at, None)

    def _append(self, name: str, key: Labels, at: float, value: float | None) -> None:
        times, values = self._series[name].setdefault(key, ([], []))
        times.append(at)
        values.append(value)

    def instant(self, selector: Any, at: float) -> Vector:
        found = Vector()
        for labels, (times, values) in self._selected(selector):
            last = bisect_right(times, at) - 1
            if last >= 0 and times[last] > at - LOOKBACK and (value := values[last]) is not None:
                found[labels] = value
        return found

    def ranges(self, selector: Any, seconds: float, at: float) -> Ranges:
        found = Ranges()
        for labels, (times, values) in self._selected(selector):
            first, end = bisect_right(times, at - seconds), bisect_right(times, at)
            points = zip(times[first:end], values[first:end], strict=True)
            if known := [(time, value) for time, value in points if value is not None]:
                found[labels] = known
        return found

    def _selected(self, selector: Any) -> Iterable[tuple[Labels, tuple[list[float], list[float | None]]]]:
        if selector.offset or selector.at or selector.matchers.or_matchers:
            raise Unsupported("offset, @ or alternatives of matchers")
        for labels, series in self._series[selector.name].items():
            if all(_matches(matcher, dict(labels)) for matcher in selector.matchers.matchers):
                yield labels, series


def _matches(matcher: Any, labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    match str(matcher.op).rpartition(".")[2]:
        case "Equal":
            return bool(value == matcher.value)
        case "NotEqual":
            return bool(value != matcher.value)
        case "Re":
            return bool(re.fullmatch(matcher.value, value))
        case _:
            return not re.fullmatch(matcher.value, value)


def evaluate(query: str, samples: Samples, at: float) -> Vector:
    found = _value(promql.parse(query), samples, at)
    if isinstance(found, float):
        raise Unsupported("a query without series")
    return found


def _value(node: Any, samples: Samples, at: float) -> Vector | float:
    match node:
        case promql.ParenExpr():
            return _value(node.expr, samples, at)
        case promql.NumberLiteral():
            return float(node.val)
        case promql.VectorSelector():
            return samples.instant(node, at)
        case promql.AggregateExpr():
            return _aggregate(node, samples, at)
        case promql.Call():
            return _call(node, samples, at)
        case promql.BinaryExpr():
            return _binary(node, _value(node.lhs, samples, at), _value(node.rhs, samples, at))
        case _:
            raise Unsupported(type(node).__name__)


def _aggregate(node: Any, samples: Samples, at: float) -> Vector:
    combine, kept = _known(_AGGREGATE, node.op), set(node.modifier.labels) if node.modifier else set[str]()
    if node.modifier and "By" not in str(node.modifier.type):
        raise Unsupported("without")
    groups = dict[Labels, list[float]]()
    inner = _value(node.expr, samples, at)
    if isinstance(inner, float):
        raise Unsupported("an aggregate of a number")
    for labels, value in inner.items():
        groups.setdefault(frozenset(one for one in labels if one[0] in kept), []).append(value)
    return {labels: float(combine(values)) for labels, values in groups.items()}


def _call(node: Any, samples: Samples, at: float) -> Vector:
    [argument] = node.args
    match node.func.name:
        case "absent":
            equal = [one for one in argument.matchers.matchers if str(one.op).endswith(".Equal")]
            labels = frozenset((one.name, one.value) for one in equal)
            return {} if samples.instant(argument, at) else {labels: 1.0}
        case "increase":
            selector, seconds = argument.vector_selector, argument.range.total_seconds()
            found = samples.ranges(selector, seconds, at)
            return {labels: _increase(points, at - seconds, at) for labels, points in found.items() if len(points) > 1}
        case "changes":
            ranges = _subquery(argument, samples, at)
            return {
                labels: float(sum(one != other for (_, one), (_, other) in pairwise(points)))
                for labels, points in ranges.items()
            }
        case name:
            raise Unsupported(name)


def _increase(points: Points, start: float, end: float) -> float:
    """What a counter has grown, extrapolated to the ends of the range. A smaller value means that it began again at 0."""
    total = sum(value - before if value >= before else value for (_, before), (_, value) in pairwise(points))
    sampled = points[-1][0] - points[0][0]
    average = sampled / (len(points) - 1)
    to_start, to_end = points[0][0] - start, end - points[-1][0]
    if to_start >= average * 1.1:
        to_start = average / 2
    if total > 0:
        to_start = min(to_start, sampled * points[0][1] / total)
    if to_end >= average * 1.1:
        to_end = average / 2
    return total * (sampled + to_start + to_end) / sampled


def _subquery(node: Any, samples: Samples, at: float) -> Ranges:
    """The values at multiples of the step."""
    if not isinstance(node, promql.SubqueryExpr) or not node.step:
        raise Unsupported("a range without a step")
    step, seconds = node.step.total_seconds(), (node.range or node.step).total_seconds()
    found = dict[Labels, list[tuple[float, float]]]()
    first = int((at - seconds) // step) + 1
    for number in range(first, int(at // step) + 1):
        inner = _value(node.expr, samples, number * step)
        if isinstance(inner, float):
            raise Unsupported("a subquery of a number")
        for labels, value in inner.items():
            found.setdefault(labels, []).append((number * step, value))
    return dict(found)


def _binary(node: Any, left: Vector | float, right: Vector | float) -> Vector | float:
    if node.modifier and (node.modifier.matching or node.modifier.return_bool):
        raise Unsupported("on, ignoring or bool")
    name = str(node.op)
    if isinstance(left, dict) and isinstance(right, dict):
        match name:
            case "and":
                return {labels: value for labels, value in left.items() if labels in right}
            case "unless":
                return {labels: value for labels, value in left.items() if labels not in right}
            case "or":
                return right | left
            case _:
                compute = _known(_COMPUTE, name)
                return {labels: compute(value, right[labels]) for labels, value in left.items() if labels in right}
    if isinstance(left, dict) and isinstance(right, float) and name in _COMPARE:
        return {labels: value for labels, value in left.items() if _COMPARE[name](value, right)}
    raise Unsupported(f"{name} of these operands")


def _known(table: Mapping[str, Any], name: Any) -> Any:
    if str(name) not in table:
        raise Unsupported(str(name))
    return table[str(name)]

"""The queries of alerts and dashboard: valid PromQL, and evaluated by `fern alerts` as Prometheus does."""

import shutil
import subprocess
import tomllib
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import cast

import promql_parser
import pytest
import yaml  # type: ignore[import-untyped]

from e2e.experiments.alerts.breakages import Breakages
from e2e.experiments.alerts.promql import Samples, Unsupported, evaluate
from e2e.support.world import World
from fern import observability
from fern.topology import Declared

ALERTS = [alert.name for alert in observability.alerts()]
CONSUMED = dict[str, list[str]]()  # the topics of each consumer
for topic, consumers in Declared.load().consumers().items():
    for consumer in consumers:
        CONSUMED.setdefault(consumer, []).append(topic)
SERIES = {
    'up{process="a"}': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
    'sent{outcome="ok", process="a"}': (0, 2, 4, 6, 8, 10, 12, 14, 16, 18),
    'sent{outcome="ok", process="b"}': (5, 5, 5, 5, 6, 6, 6, 6, 7, 7),
    'sent{outcome="failed", process="a"}': (0, 0, 0, 0, 0, 3, 0, 4, 4, 4),  # begins again in the middle
    'started{process="a"}': (100, 100, 200, 200, 300, 300, 300, 300, 300, 300),
    'started{process="b"}': (90, 90, 90, 90, 90, 90, 90, 90, 90, 90),
}
NAMES = {name.partition("{")[0] for name in SERIES}
STEP, AT = 60, 9 * 60 + 30  # seconds
QUERIES = {
    "sent > 5": 2,
    'sum(increase(sent{outcome!="failed"}[5m])) > 11': 1,
    "sum by (process) (increase(sent[5m])) > 3": 1,
    'sum(increase(sent{outcome=~"fail.+"}[5m])) / sum(increase(sent[5m])) > 0.2': 1,
    'sum(increase(sent{outcome="ok"}[5m])) - sum(increase(sent[5m])) > 0': 0,
    'max by (process) (sent{process!~"b"}) > 3 unless max by (process) (started) > 100': 0,
    "max by (process) (sent) > 3 and max by (process) (started) > 100": 1,
    'absent(up{process="a"}) or absent(up{process="b"})': 1,
    "changes(max by (process) (started)[9m:1m]) > 1": 1,
    "missing_in_this_table > 0 or up > 0": 1,
}


def samples() -> Samples:
    filled = Samples({*NAMES, "missing_in_this_table"})
    for number in range(10):
        scraped = []
        for series, values in SERIES.items():
            selector = promql_parser.parse(series)
            assert isinstance(selector, promql_parser.VectorSelector)
            labels = {one.name: one.value for one in selector.matchers.matchers}
            scraped.append((str(selector.name), labels, float(values[number])))
        filled.scraped(float(number * STEP), scraped)
    return filled


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_has_as_many_results_as_it_should(query: str) -> None:
    assert len(evaluate(query, samples(), AT)) == QUERIES[query]


@pytest.mark.system
@pytest.mark.parametrize("query", QUERIES)
def test_promtool_finds_the_same(query: str, tmp_path: Path) -> None:
    """Where Debian's package `prometheus` is installed."""
    expected = [
        {"labels": "{" + ", ".join(f'{name}="{label}"' for name, label in sorted(labels)) + "}", "value": value}
        for labels, value in evaluate(query, samples(), AT).items()
    ]
    assert len(expected) == QUERIES[query]
    if promtool := shutil.which("promtool"):
        check_with(promtool, query, expected, tmp_path)


def check_with(promtool: str, query: str, expected: list[dict[str, object]], folder: Path) -> None:
    series = [{"series": name, "values": " ".join(map(str, values))} for name, values in SERIES.items()]
    names = [{**one, "labels": name_of(query) + str(one["labels"])} for one in expected]
    test = {"expr": query, "eval_time": f"{AT}s", "exp_samples": names}
    file = folder / "test.yml"
    file.write_text(
        yaml.safe_dump({"tests": [{"interval": f"{STEP}s", "input_series": series, "promql_expr_test": [test]}]})
    )
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def name_of(query: str) -> str:
    """A comparison of a selector keeps the name of the metric."""
    return {"sent > 5": "sent", "missing_in_this_table > 0 or up > 0": "up"}.get(query, "")


@pytest.mark.parametrize(
    "query", ["rate(sent[5m]) > 0", "sum without (process) (sent) > 0", "sent offset 5m > 0", "sent == 5"]
)
def test_a_query_that_the_experiment_cannot_evaluate_is_refused(query: str) -> None:
    with pytest.raises(Unsupported):
        evaluate(query, samples(), AT)


@pytest.mark.parametrize("consumer", sorted(CONSUMED))
def test_the_alert_fires_for_each_consumer_that_takes_none_of_its_events(consumer: str) -> None:
    [alert] = [one for one in observability.alerts() if one.name == "Published events are not consumed"]

    def fires(published: Sequence[str], consumed: Collection[str]) -> bool:
        found = Samples(["messaging_client_sent_messages_total", "messaging_client_consumed_messages_total"])
        for number in range(10):
            sent = {one: float(number) for one in published}
            taken = {one: float(number * (one in consumed)) for one in CONSUMED}
            scraped = [
                ("messaging_client_sent_messages_total", {"messaging_destination_name": one}, sent[one]) for one in sent
            ]
            scraped += [("messaging_client_consumed_messages_total", {"consumer": one}, taken[one]) for one in taken]
            found.scraped(number * 60.0, scraped)
        return bool(evaluate(alert.query, found, 9 * 60.0))

    for topic in CONSUMED[consumer]:
        takers = {one for one, topics in CONSUMED.items() if topic in topics}
        assert fires([topic], takers - {consumer}), topic
        assert not fires([topic], takers), topic
    others = [topic for topics in CONSUMED.values() for topic in topics if topic not in CONSUMED[consumer]]
    assert not fires(others, CONSUMED.keys() - {consumer})


def test_each_alert_has_a_fault_that_fires_it() -> None:
    slow, groups = Breakages(cast(World, None)).groups()  # no fault is begun

    assert sorted(name for one in chain(slow, *groups) for name in one.alerts) == sorted(ALERTS)


def test_every_query_of_rules_and_dashboard_is_promql() -> None:
    watched, shown = (tomllib.loads(path.read_text()) for path in (observability.ALERTS, observability.DASHBOARD))
    queries = observability.queries(watched, shown)

    assert len(queries) > len(ALERTS)
    for name, query in queries.items():
        assert isinstance(promql_parser.parse(query), promql_parser.Expr), name


@pytest.mark.system
def test_the_rules_are_those_of_the_alerts_and_promtool_accepts_them() -> None:
    groups = yaml.safe_load(observability.RULES.read_text())["groups"]
    assert [rule["alert"] for rule in groups[0]["rules"]] == ALERTS
    if promtool := shutil.which("promtool"):
        command = [promtool, "check", "rules", str(observability.RULES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

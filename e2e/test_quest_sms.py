"""The experiment behind the guarantees, small: the other designs lose or double, ours does only where it says so."""

import json
import subprocess
import sys
from typing import Any

import pytest

from e2e.quest.misfortune import FAULTS
from fern.settings import PROJECT_ROOT

MESSAGES = 4


@pytest.fixture(scope="module")
def report() -> Any:
    command = [sys.executable, "-m", "fern", "quest", "sms", "--json", "--seed", "1", "--messages", str(MESSAGES)]
    ended = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def counts(report: Any, fault: str) -> dict[str, dict[str, int]]:
    return next(dict(result["counts"]) for result in report["results"] if result["fault"] == fault)


def test_every_design_meets_every_fault_and_everybody_is_counted(report: Any) -> None:
    assert [result["fault"] for result in report["results"]] == [fault.name for fault in FAULTS]
    for result in report["results"]:
        assert len(result["counts"]) == 3
        assert all(sum(count.values()) == MESSAGES for count in result["counts"].values())


def test_our_design_tells_everybody_once_except_where_the_guarantees_say_otherwise(report: Any) -> None:
    assert report["broken"] == []
    for result in report["results"]:
        ours = result["counts"]["ledger and asking"]
        assert ours["lost"] == 0
        assert result["remains"] or ours["duplicated"] == 0


def test_sending_inside_the_claim_doubles_and_never_loses(report: Any) -> None:
    for fault in ("reply lost", "created, but answered 500", "crash after the reply", "crash before the last commit"):
        assert counts(report, fault)["send in the claim"]["duplicated"] > 0
    assert report["totals"]["send in the claim"]["lost"] == 0


def test_recording_first_loses_and_never_doubles(report: Any) -> None:
    for fault in ("request lost", "crash after the record, before the call"):
        assert counts(report, fault)["record, then send"]["lost"] > 0
    assert report["totals"]["record, then send"]["duplicated"] == 0

"""`fern chaos` as people run it, for a short while; and a schedule that depends on nothing but its seed and its length."""

import json
import subprocess
import sys
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path

import pytest

from e2e.experiments.chaos.schedule import BUS_FAULTS, LEASE, QUARANTINE, SMS_FAULTS, schedule
from notification.domain.reactions import TOPICS

FERN = str(Path(sys.executable).with_name("fern"))
PROCESSES = ("pubsub", "sms-sandbox", "labour-api", "labour-api-2", "labour-relay", "notification-dispatcher-2")
MINUTES = 300.0


@pytest.mark.system
def test_whatever_breaks_nothing_is_lost_doubled_out_of_order_or_unexplained() -> None:
    command = [FERN, "chaos", "--seconds", "20", "--seed", "13", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [report[kind] for kind in ("lost", "duplicated", "out_of_order", "unexplained")] == [0, 0, 0, 0]
    account = report["account"]
    assert account["committed"] == account["published"] > 0
    assert account["claimed"] == account["effects"] > 0
    assert account["texts due"] == account["texts on phones"] + account["refused by the provider"] > 0
    assert account["people"] == account["people with exactly their texts"]
    # Faults of every kind were injected; how many of them took effect depends on how busy the machine is.
    assert len(report["injected"]) == len({action["kind"] for action in report["schedule"]}) == 7
    assert any(report["injected"].values())
    assert report["clients"]["replayed answers"] > 0


def test_the_same_seed_and_length_give_the_same_schedule_and_another_seed_another() -> None:
    assert schedule(7, MINUTES, PROCESSES) == schedule(7, MINUTES, PROCESSES)
    assert schedule(7, MINUTES, PROCESSES) != schedule(8, MINUTES, PROCESSES)


def test_in_some_minutes_everything_breaks_and_each_kind_of_thing_one_at_a_time() -> None:
    actions = schedule(7, MINUTES, PROCESSES)

    assert actions == sorted(actions, key=attrgetter("at"))
    assert all(action.at + action.seconds <= MINUTES for action in actions)
    lanes = {
        kind: list(lane) for kind, lane in groupby(sorted(actions, key=attrgetter("kind", "at")), attrgetter("kind"))
    }
    assert {kind: {action.target for action in lane} for kind, lane in lanes.items()} == {
        "kill": set(PROCESSES),
        "freeze": set(PROCESSES),
        "database": {"fast", "immediate"},
        "cut": {"labour", "notification"},
        "bus": set(BUS_FAULTS),
        "sms": set(SMS_FAULTS),
        "poison": set(TOPICS),
    }
    for lane in lanes.values():
        assert all(one.at + one.seconds <= next_one.at + 0.02 for one, next_one in pairwise(lane))


def test_a_text_is_never_out_of_sight_for_longer_than_we_promise_to_survive() -> None:
    actions = [action for seed in range(50) for action in schedule(seed, MINUTES, PROCESSES)]

    def longest(kind: str, target: str) -> float:
        return max(action.seconds for action in actions if (action.kind, action.target) == (kind, target))

    sender, provider = longest("freeze", "notification-dispatcher-2"), longest("freeze", "sms-sandbox")
    hidden = max(SMS_FAULTS[fault]["seconds"] for fault in ("created-late", "list-lag"))
    assert sender > LEASE
    assert sender + provider + hidden < LEASE + QUARANTINE - 3.0  # a busy machine is slow, too

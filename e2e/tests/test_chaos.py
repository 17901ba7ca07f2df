"""A short run of `fern chaos`; and its schedule, which depends on seed and duration alone."""

import json
import subprocess
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

import pytest

from e2e.experiments.chaos import accounting
from e2e.experiments.chaos.schedule import BUS_FAULTS, LEASE, QUARANTINE, SMS_FAULTS, schedule
from e2e.support.installation import FERN
from notification.domain.reactions import TOPICS

PROCESSES = ("pubsub", "sms-sandbox", "labour-api", "labour-api-2", "labour-relay", "notification-dispatcher-2")
MINUTES = 300.0


@pytest.mark.system
def test_under_all_faults_nothing_is_lost_duplicated_out_of_order_or_unexplained() -> None:
    command = [FERN, "chaos", "--seconds", "20", "--seed", "13", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [report[kind] for kind in ("lost", "duplicated", "out_of_order", "unexplained")] == [0, 0, 0, 0]
    account = report["account"]
    assert account["committed"] == account["published"] > 0
    assert account["claimed"] == account["effects"] > 0
    not_sent = account["refused by the provider"] + account["superseded by a newer text"]
    assert account["texts due"] == account["texts on phones"] + not_sent > 0
    assert account["people"] == account["people with exactly their texts"]
    # Faults of every kind were injected; how many of them took effect depends on how busy the machine is.
    assert len(report["injected"]) == len({action["kind"] for action in report["schedule"]}) == 7
    assert any(report["injected"].values())
    assert report["clients"]["replayed answers"] > 0


def test_the_account_explains_a_superseded_text_by_a_newer_one_and_finds_texts_out_of_order() -> None:
    def row(sequence: int, state: str, **others: Any) -> dict[str, Any]:
        message = {"phone": "+1", "body": f"text {sequence} #ABCDEFGH", "event_id": sequence, "sequence": sequence}
        return {**message, "labour_id": 1, "person_id": 1, "state": state, "was_in_doubt": False, **others}

    begun, completed = row(1, "SENT"), row(2, "SENT")
    on_the_phone = [{"to": "+1", "body": one["body"]} for one in (completed, begun)]

    assert accounting._superseded([row(1, "SUPERSEDED"), completed]) == [row(1, "SUPERSEDED")]
    assert accounting._superseded([row(1, "SUPERSEDED"), row(2, "SENT", person_id=2)]) == []
    [finding] = accounting._check_order_of_texts([begun, completed], on_the_phone)
    assert (finding.kind, finding.event_id) == ("out-of-order", "1")
    assert list(accounting._check_order_of_texts([begun, completed], on_the_phone[::-1])) == []
    in_doubt = row(1, "SENT", was_in_doubt=True)  # the provider may have created it late
    assert list(accounting._check_order_of_texts([in_doubt, completed], on_the_phone)) == []


def test_the_same_seed_and_length_give_the_same_schedule_and_another_seed_another() -> None:
    assert schedule(7, MINUTES, PROCESSES) == schedule(7, MINUTES, PROCESSES)
    assert schedule(7, MINUTES, PROCESSES) != schedule(8, MINUTES, PROCESSES)


def test_within_minutes_every_target_is_hit_and_faults_of_one_kind_do_not_overlap() -> None:
    actions = schedule(7, MINUTES, PROCESSES)

    assert actions == sorted(actions, key=attrgetter("at"))
    assert all(action.at + action.seconds <= MINUTES for action in actions)
    by_kind = groupby(sorted(actions, key=attrgetter("kind", "at")), attrgetter("kind"))
    kinds = {kind: list(faults) for kind, faults in by_kind}
    assert {kind: {action.target for action in faults} for kind, faults in kinds.items()} == {
        "kill": set(PROCESSES),
        "freeze": set(PROCESSES),
        "database": {"fast", "immediate"},
        "cut": {"labour", "notification"},
        "bus": set(BUS_FAULTS),
        "sms": set(SMS_FAULTS),
        "poison": set(TOPICS),
    }
    for faults in kinds.values():
        assert all(one.at + one.seconds <= next_one.at + 0.02 for one, next_one in pairwise(faults))


def test_a_text_is_never_hidden_for_longer_than_the_system_promises_to_survive() -> None:
    actions = [action for seed in range(50) for action in schedule(seed, MINUTES, PROCESSES)]

    def longest(kind: str, target: str) -> float:
        return max(action.seconds for action in actions if (action.kind, action.target) == (kind, target))

    sender, provider = longest("freeze", "notification-dispatcher-2"), longest("freeze", "sms-sandbox")
    hidden = max(SMS_FAULTS[fault]["seconds"] for fault in ("created-late", "list-lag"))
    assert sender > LEASE
    assert sender + provider + hidden < LEASE + QUARANTINE - 3.0  # a margin for a slow machine

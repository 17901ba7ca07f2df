"""A short run of `fern chaos`; its schedule, which depends on the seed and the profile alone; and how recovery is measured."""

import json
import os
import re
import subprocess
from dataclasses import replace
from itertools import pairwise, product
from operator import attrgetter
from typing import Any

import pytest

from e2e.experiments.chaos import accounting, recovery
from e2e.experiments.chaos.fault_injector import LABELS
from e2e.experiments.chaos.output import own_lines_only
from e2e.experiments.chaos.recovery import Recovery, recovered_at
from e2e.experiments.chaos.schedule import (
    BUS_FAULTS,
    KINDS,
    LANES,
    LEASE,
    LOCKED,
    PROFILES,
    QUARANTINE,
    SMS_FAULTS,
    TIMES,
    one_at_a_time,
    schedule,
)
from e2e.support.installation import FERN
from notification.domain.reactions import TOPICS

PROCESSES = ("pubsub", "sms-sandbox", "labour-api", "labour-api-2", "labour-relay", "notification-dispatcher-2")
OURS = set(PROCESSES) - {"pubsub", "sms-sandbox"}
MINUTES = replace(PROFILES["default"], seconds=600.0)


@pytest.mark.system
def test_under_all_faults_nothing_is_lost_duplicated_out_of_order_or_unexplained() -> None:
    command = [FERN, "chaos", "--profile", "ci", "--seed", "13", "--json"]
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
    # Faults of every kind were scheduled; how many of them took effect depends on how busy the machine is.
    without_a_disk = {"full-disk"} if "a full disk" in report["left_out"] else set()
    assert {action["kind"] for action in report["schedule"]} == {*KINDS} - without_a_disk
    assert any(report["injected"].values())
    assert report["clients"]["replayed answers"] > 0
    foreign = [line for line in done.stderr.splitlines() if not re.match(r"seed 13; |[a-z ]+ \d+( of 20)? s", line)]
    assert foreign == []


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


def test_the_same_seed_and_profile_give_the_same_schedule_and_another_seed_another() -> None:
    assert schedule(7, MINUTES, PROCESSES) == schedule(7, MINUTES, PROCESSES)
    assert schedule(7, MINUTES, PROCESSES) != schedule(8, MINUTES, PROCESSES)


def test_within_minutes_every_target_is_hit_and_faults_of_one_lane_do_not_overlap() -> None:
    actions = schedule(7, MINUTES, PROCESSES)

    assert actions == sorted(actions, key=attrgetter("at"))
    assert all(action.at + action.seconds <= MINUTES.seconds for action in actions)
    targets = {kind: {action.target for action in actions if action.kind == kind} for kind in KINDS}
    assert targets == {
        "kill": set(PROCESSES),
        "freeze": set(PROCESSES),
        "database": {"fast", "immediate"},
        "cut": {"labour", "notification"},
        "bus": set(BUS_FAULTS),
        "sms": set(SMS_FAULTS),
        "poison": set(TOPICS),
        "silence": {"labour", "notification"},
        "read-only": {"postgres"},
        "full-disk": {"postgres"},
        "lock": set(LOCKED),
        "connections": {"labour", "notification"},
        "overload": {"labour-api", "labour-api-2"},
        "poison-burst": set(TOPICS),
        "long-freeze": set(PROCESSES) - {"sms-sandbox"},
        "clock": OURS,
    }
    for lane in LANES:
        faults = [action for action in actions if action.kind in lane]
        assert all(one.at + one.seconds <= next_one.at + 0.02 for one, next_one in pairwise(faults))


def test_every_profile_has_every_kind_of_fault_unless_one_kind_is_asked_for() -> None:
    for seed, profile in product(range(5), PROFILES.values()):
        assert {action.kind for action in schedule(seed, profile, PROCESSES)} == {*KINDS}
        assert {action.kind for action in schedule(seed, profile, PROCESSES, ["silence"])} == {"silence"}


def test_the_dead_letters_of_a_night_can_be_held_at_once() -> None:
    night = schedule(7, PROFILES["night"], PROCESSES)

    bursts = [action.options["messages"] for action in night if action.kind == "poison-burst"]
    assert min(bursts) >= 2000
    assert sum(bursts) + sum(action.kind == "poison" for action in night) < 10_000


def test_one_at_a_time_has_as_many_faults_of_each_kind_as_rounds() -> None:
    faults = one_at_a_time(7, 3, PROCESSES)

    assert {kind: [fault.kind for fault in faults].count(kind) for kind in KINDS} == dict.fromkeys(KINDS, 3)
    assert faults == one_at_a_time(7, 3, PROCESSES)


def test_a_text_is_never_hidden_for_longer_than_the_system_promises_to_survive() -> None:
    actions = [action for seed in range(50) for action in schedule(seed, MINUTES, PROCESSES)]

    def longest(kind: str, target: str) -> float:
        return max(action.seconds for action in actions if (action.kind, action.target) == (kind, target))

    def shortest(kind: str) -> float:
        return min(action.seconds for action in actions if action.kind == kind)

    sender, provider = longest("freeze", "notification-dispatcher-2"), longest("freeze", "sms-sandbox")
    hidden = max(SMS_FAULTS[fault]["seconds"] for fault in ("created-late", "list-lag"))
    assert sender > LEASE
    assert sender + provider + hidden < LEASE + QUARANTINE - 3.0  # a margin for a slow machine
    assert shortest("long-freeze") > LEASE + QUARANTINE


def test_recovery_is_the_first_sample_after_which_the_backlog_stays_as_young_as_before() -> None:
    def samples(*ages: float | None) -> list[tuple[float, float | None]]:
        return [(second / 2, age) for second, age in enumerate(ages)]

    young = [0.2] * 8
    assert recovered_at(samples(*young), since=0.0, good=1.0) == 0.0, "there was no delay"
    assert recovered_at(samples(0.2, 5.0, None, 3.0, *young), since=0.0, good=1.0) == 2.0
    assert recovered_at(samples(0.2, 5.0, 0.3, 3.0, *young), since=0.0, good=1.0) == 2.0, "one young sample is luck"
    assert recovered_at(samples(0.2, 5.0, 0.3, 3.0, 0.2), since=0.0, good=1.0) is None, "too early to say"
    assert recovered_at(samples(0.2, 5.0, 3.0, *young), since=0.0, good=4.0) == 1.0, "as old as before"


def test_the_documentation_has_the_table_of_recovery_with_every_kind_of_fault() -> None:
    page = recovery.PAGE.read_text()
    section = page.partition(recovery.BEGIN)[2].partition(recovery.END)[0]
    example = recovery.table([Recovery(kind, "", 1.0) for kind in KINDS])

    def form(text: str) -> list[str]:
        return re.findall(r"^\|.*$", re.sub(r"\| [0-9.]+ (?=\|)", "| n ", text), flags=re.MULTILINE)

    assert re.search(r"^fern chaos --recovery --rounds \d+ --seed \d+$", section, flags=re.MULTILINE)
    assert form(section) == form(example), "every system recovered, in a number of seconds"
    assert len({name for _, name in LABELS.values()}) == len(KINDS) == len(TIMES)


def test_while_a_run_is_shown_only_its_own_lines_reach_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with own_lines_only() as console:
        os.write(2, b"a warning of a library\n")
        os.write(1, b"a line of a child process, which has the same descriptors\n")
        console.print("injecting faults")
    os.write(2, b"an error at the end\n")

    assert capfd.readouterr() == ("", "injecting faults\nan error at the end\n")

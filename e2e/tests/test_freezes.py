"""Each process is frozen at each of its fault points for longer than every lease, while replicas go on, and is then resumed.

A frozen process keeps its connections, and does not know later that it was frozen. In each round every process is frozen at one
of its points, until the replicas have told everyone: then all leases of the frozen processes are over. The test ends two kinds of
lease itself, because they are long: it restarts the bus, which forgets its leases (10 s), and terminates sessions that hold a
transaction, as the database does after 20 s.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import TypeVar

import httpx
import pytest

from e2e.experiments.crash_points import CASES, PROCESSES
from e2e.support.api import client
from e2e.support.databases import fresh_databases
from e2e.support.waiting import until
from e2e.support.world import BEGUN, COMPLETE, PlannedLabour, World, running_world
from fern.audit.auditor import Finding, audit
from fern.runtime.postgres import TemporaryServer

T = TypeVar("T")
TWICE = [name for name in PROCESSES if name != "notification-api"]  # callbacks wait for it
SHORT = {"SMS_LEASE_SECONDS": "1", "SMS_TIMEOUT_SECONDS": "0.5", "SMS_QUARANTINE_SECONDS": "1"}
ROUNDS = [
    {process: point for process, point in zip(PROCESSES, points, strict=True) if point}
    for points in zip_longest(*([point for name, point in CASES if name == process] for process in PROCESSES))
]

# A session is idle in its transaction, or waits for the rest of a statement whose parameters a frozen process has not sent.
HANGING_TRANSACTIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND state_change < clock_timestamp() - interval '2 s'
        AND (state = 'idle in transaction' OR (state = 'active' AND wait_event = 'ClientRead'))
"""
UNTOLD = """
    SELECT labour_id FROM unnest($1::uuid[]) AS labour (labour_id) LEFT JOIN notification USING (labour_id)
    GROUP BY labour_id HAVING count(*) FILTER (WHERE state IN ('SENT', 'DELIVERED', 'SUPERSEDED')) < 2
"""


@pytest.fixture(scope="module")
def replicas(postgres: TemporaryServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    urls = asyncio.run(fresh_databases(postgres))
    with running_world(tmp_path_factory.mktemp("freezes"), urls, twice=TWICE, environment=SHORT) as world:
        yield world


@pytest.mark.parametrize("frozen", ROUNDS, ids=lambda frozen: frozen["notification-dispatcher"])
def test_a_freeze_longer_than_every_lease_loses_nothing_and_doubles_nothing_and_keeps_the_order(
    replicas: World, frozen: dict[str, str]
) -> None:
    world, first_api = replicas, replicas.labour_api
    for process, point in frozen.items():
        world.crash_file(process).write_text(f"freeze {point}")
        if point.startswith("reconcile."):
            world.sms_sandbox.put("/faults/callbacks-lost", json={"rate": 1}).raise_for_status()
            world.sms_sandbox.put("/faults/reply-lost", json={"rate": 1, "times": 6}).raise_for_status()
    labours, unanswered = list[PlannedLabour](), list[threading.Thread]()

    with client(world.labour_apis[1]) as world.labour_api:
        while not labours or any(world.crash_file(process).exists() for process in frozen):
            labour = _answered(world, lambda: world.plan("Grace"))
            _answered(world, lambda: world.begin(labour))  # noqa: B023
            if "labour-api" in frozen and world.crash_file("labour-api").exists():
                unanswered.append(_complete_without_waiting(first_api, labour))
            _answered(world, lambda: world.complete(labour))  # noqa: B023
            labours.append(labour)
        world.kill("pubsub")
        world.start("pubsub")
        until(lambda: _untold(world, labours), lambda untold: not untold, what="the replicas have told everyone")
    world.labour_api = first_api
    for process in frozen:
        world.resume(process)
    for fault in ("callbacks-lost", "reply-lost"):
        world.sms_sandbox.delete(f"/faults/{fault}").raise_for_status()
    for thread in unanswered:
        thread.join()

    until(lambda: _findings(world), lambda findings: not findings, what="the audit is clean")
    for labour in labours:
        [phone] = labour.people.values()
        texts = [message["body"].rpartition(" #")[0] for message in reversed(world.messages(phone))]
        assert texts in ([BEGUN, COMPLETE], [COMPLETE]), "the newest text once, and the older one before it or never"


def test_every_process_is_frozen_at_every_point() -> None:
    assert sorted(case for frozen in ROUNDS for case in frozen.items()) == sorted(CASES)


def _answered(world: World, request: Callable[[], T]) -> T:
    """Repeat a request, as a client does, while the frozen replica holds what it needs."""
    answers = list[T]()

    def is_answered() -> bool:
        _end_hanging_transactions(world)
        with contextlib.suppress(httpx.HTTPError):
            answers.append(request())
        return bool(answers)

    until(is_answered, what="the second replica has answered")
    return answers[0]


def _complete_without_waiting(api: httpx.Client, labour: PlannedLabour) -> threading.Thread:
    headers = labour.mother | {"Idempotency-Key": f'"complete-{labour.id}"'}

    def complete() -> None:
        with contextlib.suppress(httpx.HTTPError):
            api.put(f"/api/v1/labours/{labour.id}/complete", headers=headers)

    thread = threading.Thread(target=complete)
    thread.start()
    return thread


def _untold(world: World, labours: list[PlannedLabour]) -> int:
    _end_hanging_transactions(world)
    return len(world.sql("notification", UNTOLD, [labour.id for labour in labours]))


def _end_hanging_transactions(world: World) -> None:
    for service in world.urls:
        world.sql(service, HANGING_TRANSACTIONS)


def _findings(world: World) -> list[Finding]:
    return asyncio.run(audit(world.urls, sandbox=world.settings.url("sms-sandbox"), overdue_seconds=0)).findings

"""What operators do while the system runs: retry and discard parked rows and dead letters, replay, delete old rows."""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import click
import pytest

from e2e.support.background_load import BackgroundLoad
from e2e.support.bus import apply_topology, pull_all
from e2e.support.waiting import PATIENCE, until
from e2e.support.world import COMPLETE, PlannedLabour, World
from fern.cli import main
from fern.dead_letters import DeadLetter, Look
from fern.settings import PROJECT_ID, PROJECT_ROOT
from messaging.bus import Message, Outgoing
from messaging.pubsub import PubSub

SUBSCRIPTION = "notification.labour.completed"


def completed_event(world: World, labour: PlannedLabour) -> str:
    query = "SELECT event_id FROM outbox WHERE ordering_key = $1 AND topic = 'labour.completed'"
    [row] = world.sql("labour", query, str(labour.id))
    return str(row["event_id"])


def complete_without(world: World, process: str, labours: list[PlannedLabour], then: Callable[[], None]) -> None:
    """Complete the labours while this process is stopped, and call `then` before it is started again."""
    world.stop(process)
    for labour in labours:
        world.complete(labour)
    then()
    world.start(process)


def take_from_the_bus(
    world: World, labours: list[PlannedLabour], bury: Callable[[PubSub, Message], Awaitable[object]]
) -> None:
    """Remove the messages about these completions from the bus before the consumer gets them. `bury` is called with each."""

    async def take() -> None:
        bus = PubSub(PROJECT_ID)
        wanted, others = {str(labour.id) for labour in labours}, list[str]()
        async with asyncio.timeout(PATIENCE):
            while wanted:
                for message in await bus.pull(SUBSCRIPTION, 100, wait=2):
                    if (subject := message.attributes["ce-subject"]) in wanted:
                        await bury(bus, message)
                        await bus.acknowledge(SUBSCRIPTION, [message.ack_id])
                        wanted.remove(subject)
                    else:
                        others.append(message.ack_id)
        await bus.modify_deadline(SUBSCRIPTION, others, 0)
        await bus.close()

    world.use_bus()
    asyncio.run(take())


def test_parked_rows_are_retried_and_discarded_by_the_group_under_load(world: World, load: BackgroundLoad) -> None:
    wanted, unwanted = [world.plan("Alan") for _ in range(3)], [world.plan("Alan") for _ in range(2)]
    spoil = """UPDATE outbox SET attributes = attributes || jsonb_build_object($1::text, repeat('x', 1025)), attempts = 9
        WHERE ordering_key = ANY($2) AND topic = 'labour.completed'"""

    def spoil_all() -> None:
        for attribute, labours in (("spoilt", wanted), ("rotten", unwanted)):
            world.sql("labour", spoil, attribute, [str(labour.id) for labour in labours])

    complete_without(world, "labour-relay", [*wanted, *unwanted], spoil_all)
    until(lambda: len(parked_groups(world)) == 2, what="both groups are parked")

    [first, second] = parked_groups(world)
    world.sql("labour", "UPDATE outbox SET attributes = attributes - 'spoilt' WHERE attributes ? 'spoilt'")
    retried = world.fern("outbox", "retry", "--reason", "spoilt")
    discarded = world.fern("outbox", "discard", "--reason", "rotten", "--service", "labour", "--yes")

    assert [(group["count"], group["labours"]) for group in (first, second)] == [(3, 3), (2, 2)]
    assert "INVALID_ARGUMENT" in first["reason"]
    assert ("3 parked rows will be tried again" in retried, "2 parked rows are discarded" in discarded) == (True, True)
    for labour in wanted:
        world.until_everyone_is_told(labour, COMPLETE)
    load.assert_everyone_is_told_once()
    assert [world.texts(labour) for labour in unwanted] == [{"Alan": []}] * 2
    assert parked_groups(world) == []


def parked_groups(world: World) -> Any:
    return world.fern("outbox", "ls", "--parked")["groups"]


def test_dead_letters_are_seen_shown_without_names_redriven_and_discarded_under_load(
    world: World, load: BackgroundLoad
) -> None:
    revived, given_up, broken = (world.plan("Alan") for _ in range(3))

    why = {
        str(revived.id): {"dead-letter-reason": "reaction-failed", "dead-letter-consumer": "notification"},
        str(given_up.id): {"CloudPubSubDeadLetterSourceSubscription": SUBSCRIPTION},
    }

    async def bury(bus: PubSub, message: Message) -> None:
        """Dead-letter it, once as a consumer does, and once as the bus does after too many deliveries."""
        attributes = {**message.attributes, **why[message.attributes["ce-subject"]]}
        await bus.publish("labour.completed.dlq", [Outgoing(message.data, attributes)])

    def spoil() -> None:
        payload = "jsonb_set(payload::jsonb, '{roster_version}', '\"x\"')::text"
        query = f"UPDATE outbox SET payload = {payload} WHERE ordering_key = $1 AND topic = 'labour.completed'"
        world.sql("labour", query, str(broken.id))

    mortal = [revived, given_up]
    complete_without(world, "notification-consumer", mortal, lambda: take_from_the_bus(world, mortal, bury))
    complete_without(world, "labour-relay", [broken], spoil)
    until(lambda: dead(world) == 4, what="all three are dead-lettered, the broken one by both of its consumers")

    groups = {(group["reason"], group["consumer"]): group["count"] for group in world.fern("dlq", "ls")["groups"]}
    shown = json.loads(world.fern("dlq", "show", "--reason", "wrong-schema", "--json"))["items"][0]
    world.fern("dlq", "redrive", "--reason", "reaction-failed")
    again = world.fern("dlq", "redrive", "--reason", "wrong-schema")
    until(lambda: dead(world) == 3, what="the broken one is dead-lettered again, and not more often than before")
    said = world.fern("dlq", "discard", "--reason", "deliveries-exhausted", "--yes")

    reasons = ("reaction-failed", "deliveries-exhausted", "wrong-schema")
    assert groups == {**{(reason, "notification"): 1 for reason in reasons}, ("wrong-schema", "statistics"): 1}
    assert "2 of 2 dead letters are published again" in again
    assert (shown["event_id"], shown["data"]["mother_name"]) == (completed_event(world, broken), "[private]")
    assert completed_event(world, given_up) in said
    world.until_everyone_is_told(revived, COMPLETE)
    effects = json.loads(
        world.fern("replay", f"--labour={given_up.id}", "--type=labour.completed", "--dry-run", "--json")
    )["effects"]
    seen = {one["consumer"]: (one["done"], one["discarded"], one["would_be_handled"]) for one in effects}
    assert seen == {"notification": (0, 1, 0), "statistics": (1, 0, 0)}
    world.fern("dlq", "discard", "--event", shown["event_id"], "--yes")
    assert dead(world) == 0
    load.assert_everyone_is_told_once()
    assert [world.texts(labour) for labour in (given_up, broken)] == [{"Alan": []}] * 2


def dead(world: World) -> int:
    items = world.pubsub.get("/backlog").json()["items"]
    return sum(item["unacked"] for item in items if item["subscription"].endswith(".dlq"))


def test_a_replay_delivers_what_was_lost_and_nothing_twice_under_load(world: World, load: BackgroundLoad) -> None:
    began = datetime.now(UTC).isoformat()
    lost, told = world.plan("Alan"), world.plan("Alan")
    world.complete(told)

    async def lose(bus: PubSub, message: Message) -> None:
        """As a bus does with messages that are older than its retention."""

    complete_without(world, "notification-consumer", [lost], lambda: take_from_the_bus(world, [lost], lose))
    world.until_everyone_is_told(told, COMPLETE)

    rehearsed = world.fern("replay", f"--labour={lost.id}", "--dry-run")
    replayed = world.fern("replay", f"--since={began}", "--yes")

    assert "labour.completed → notification: 0 already done, 1 would be handled now" in rehearsed
    assert completed_event(world, lost) in rehearsed
    assert "labour.planned → no consumer: 1 events, no effect" in rehearsed
    assert "0 not yet" in replayed
    for labour in (lost, told):
        world.until_everyone_is_told(labour, COMPLETE)
    load.assert_everyone_is_told_once()
    repeated = "SELECT 1 FROM processed_event WHERE event_id = $1 AND deliveries > 1"
    event_id = UUID(completed_event(world, told))
    until(lambda: world.sql("notification", repeated, event_id), what="the second delivery is counted")


def test_old_rows_are_deleted_by_a_command_while_the_system_runs(world: World, load: BackgroundLoad) -> None:
    old = world.plan("Alan")
    world.complete(old)
    world.until_everyone_is_told(old, COMPLETE)
    age = "UPDATE outbox SET recorded_at = now() - interval '1 year', published_at = now() - interval '1 year' "
    age += "WHERE ordering_key = $1 AND published_at < now() RETURNING 1"
    until(lambda: len(world.sql("labour", age, str(old.id))) == 3, what="its events are published, and now old")

    forgotten = json.loads(world.fern("retention", "--json"))

    assert forgotten["labour"]["rows_deleted"] == 3
    assert not world.sql("labour", "SELECT 1 FROM outbox WHERE ordering_key = $1", str(old.id))
    load.assert_everyone_is_told_once()


def test_a_relay_does_not_start_with_a_retention_shorter_than_the_replay_horizon(world: World) -> None:
    done = world.run("labour", "relay", RETENTION_DAYS="5")

    assert done.returncode == 78
    assert "set RETENTION_DAYS to 30 or more" in done.stderr


def test_every_command_of_the_runbook_exists_with_its_options() -> None:
    runbook = (PROJECT_ROOT / "docs" / "operations.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", runbook, re.DOTALL)
    commands = [line for line in "".join(blocks).splitlines() if line.startswith("fern ")]

    for line in commands:
        alone = line.partition(" | ")[0].replace(" --context staging", "")
        _, *arguments = shlex.split(re.sub(r"[A-Z]+_ID", str(uuid4()), alone))
        command: click.Command = main
        while isinstance(command, click.Group):
            _, found, arguments = command.resolve_command(click.Context(command), arguments)
            assert found, line
            command = found
        command.make_context("fern", arguments)  # raises the error that an operator would get
    assert len(commands) > 20


@pytest.fixture
async def bus(any_bus_host: str, project: str) -> AsyncIterator[PubSub]:
    await apply_topology(
        project, {"labour.begun": ["notification"]}, max_delivery_attempts=5, minimum_backoff_seconds=0
    )
    bus = PubSub(project)
    yield bus
    await bus.close()


async def test_listing_dead_letters_leaves_them_and_names_those_that_were_delivered_too_often(bus: PubSub) -> None:
    await bus.publish("labour.begun", [Outgoing(b"{}", {"ce-id": str(number)}) for number in range(3)])
    letters = list[DeadLetter]()
    while len(letters) < 3:
        while messages := await bus.pull("notification.labour.begun", 10, wait=1):
            await bus.modify_deadline("notification.labour.begun", [message.ack_id for message in messages], 0)
        async with Look(bus, ["labour.begun"]) as look:
            letters = [letter async for batch in look.batches() for letter in batch]
            async with Look(bus, ["labour.begun"]) as other:
                assert [batch async for batch in other.batches()] == []

    assert {(letter.topic, letter.consumer, letter.reason) for letter in letters} == {
        ("labour.begun", "notification", "deliveries-exhausted")
    }
    assert [letter.original for letter in sorted(letters, key=lambda letter: letter.event_id)] == [
        {"ce-id": str(number)} for number in range(3)
    ]
    assert len(await pull_all(bus, "labour.begun.dlq")) == 3

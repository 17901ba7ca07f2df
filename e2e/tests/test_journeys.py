"""The whole path of an event through the real processes, from the request of the mother to the texts."""

import pytest

from conftest import BUSES
from e2e.experiments.chaos.statistics import check_statistics
from e2e.support.waiting import until
from e2e.support.world import ANNOUNCED, BEGUN, COMPLETE, PlannedLabour, World


@pytest.fixture(params=["world" if bus == "embedded" else "google_world" for bus in BUSES])
def any_world(request: pytest.FixtureRequest) -> World:
    world = request.getfixturevalue(request.param)
    assert isinstance(world, World)
    return world


def test_everyone_is_told_when_it_begins_and_when_the_baby_is_here(any_world: World) -> None:
    labour = any_world.plan("Grace", "Alan")

    any_world.begin(labour)
    any_world.until_everyone_is_told(labour, BEGUN)
    any_world.request(labour, "POST", "/updates", {"kind": "announcement", "text": "Nearly there!"})
    any_world.until_everyone_is_told(labour, BEGUN, ANNOUNCED)
    any_world.complete(labour)

    any_world.until_everyone_is_told(labour, BEGUN, ANNOUNCED, COMPLETE)
    any_world.until_nothing_is_lost_or_doubled(labour)


def test_a_text_in_doubt_that_was_not_sent_is_superseded_by_the_birth(world: World) -> None:
    """On a slow machine the quarantine may be over before the birth: then the text about the beginning was sent before it."""

    def superseded() -> PlannedLabour | None:
        labour = world.plan("Grace")
        world.sms_sandbox.put("/faults/request-lost", json={"rate": 1, "times": 1}).raise_for_status()
        world.begin(labour)
        until(
            lambda: _states(world, labour).get("labour.begun") not in (None, "PENDING", "SENDING"), what="it is called"
        )
        world.complete(labour)
        until(lambda: _states(world, labour).get("labour.completed") in ("SENT", "DELIVERED"), what="the birth is told")
        until(lambda: _states(world, labour)["labour.begun"] != "IN_DOUBT", what="the doubt is resolved")
        return labour if _states(world, labour)["labour.begun"] == "SUPERSEDED" else None

    labour = until(superseded, what="the birth came before the end of the quarantine")

    assert labour is not None
    assert world.texts(labour) == {"Grace": [COMPLETE]}
    until(lambda: ("Grace", "labour.begun", "superseded") in _told(world, labour), what="the mother sees it")
    world.until_nothing_is_lost_or_doubled(labour)


def test_a_subscriber_who_was_removed_is_not_told(world: World) -> None:
    labour = world.plan("Grace")
    leaving = world.subscribe(labour, "Alan")
    phone = labour.people["Alan"]
    world.request(labour, "DELETE", f"/subscribers/{leaving}")
    del labour.people["Alan"]

    world.complete(labour)

    world.until_everyone_is_told(labour, COMPLETE)
    assert world.messages(phone) == []


def test_the_status_callbacks_of_the_provider_end_in_delivered_and_the_labour_knows_it(world: World) -> None:
    labour = world.plan("Grace")
    world.complete(labour)

    def delivered() -> bool:
        items = world.operators["notification"].get(f"/api/v1/labours/{labour.id}/notifications").json()["items"]
        return [item["state"] for item in items] == ["DELIVERED"]

    until(delivered, what="delivered")
    until(lambda: _told(world, labour) == [("Grace", "labour.completed", "delivered")], what="the labour shows it")
    query = "SELECT topic FROM outbox WHERE ordering_key = $1 ORDER BY position"
    topics = [row["topic"] for row in world.sql("notification", query, str(labour.id))]
    assert topics == ["notification.sent", "notification.delivered"]


def test_the_statistics_of_a_labour_are_shown_once_its_events_are_counted_and_can_be_rebuilt(world: World) -> None:
    labour = world.plan()
    for minute in range(3):
        times = (
            {"started_at": f"2026-01-01T00:0{minute}:00Z"},
            {"ended_at": f"2026-01-01T00:0{minute}:30Z", "intensity": 5},
        )
        one = world.request(labour, "POST", "/contractions", times[0])["id"]
        world.request(labour, "PUT", f"/contractions/{one}/end", times[1])
    world.request(labour, "DELETE", f"/contractions/{one}")
    world.complete(labour)

    def shown() -> tuple[int, float | None, float | None, list[str]]:
        seen = world.request(labour, "GET", "/statistics")
        averages = seen["average_length_seconds"], seen["average_interval_seconds"]
        return seen["contractions"], *averages, [one["phase"] for one in seen["phases"]]

    world.until_nothing_is_lost_or_doubled(labour)
    assert shown() == (2, 30, 60, ["early"])

    world.sql("labour", "UPDATE statistics_balance SET amount = amount + 1 WHERE labour_id = $1", labour.id)
    assert f"{labour.id}  contractions  3" in world.fern("statistics", "verify", code=27)
    assert [finding.event_id for finding in check_statistics(world)] == [str(labour.id)], "as chaos checks it"
    assert "are rebuilt" in world.fern("statistics", "rebuild")
    assert "every balance is the sum" in world.fern("statistics", "verify")
    assert list(check_statistics(world)) == []
    assert shown() == (2, 30, 60, ["early"])


def test_no_log_line_has_a_phone_number_or_a_text(world: World) -> None:
    labour = world.plan("Grace", "Alan")
    world.complete(labour)
    world.until_everyone_is_told(labour, COMPLETE)

    for log in world.settings.logs.glob("*.log"):
        lines = log.read_text()
        assert lines, f"{log.name} is empty"
        for phone in labour.people.values():
            assert phone not in lines, log.name
            assert phone.removeprefix("+") not in lines, log.name
        assert "The baby is here" not in lines, log.name


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(["nonsense"], 64, "usage"), (["api"], 78, "LABOUR_DATABASE_URL is not set: export LABOUR_DATABASE_URL=…")],
)
def test_a_process_that_cannot_start_prints_the_reason_and_has_its_own_exit_code(
    world: World, arguments: list[str], code: int, said: str
) -> None:
    done = world.run("labour", *arguments, LABOUR_DATABASE_URL="")

    assert done.returncode == code
    assert said in done.stderr


def test_a_parked_event_is_listed_and_retried_with_one_command_and_delays_no_other_labour(world: World) -> None:
    poisoned, healthy = world.plan("Grace"), world.plan("Alan")
    _until_all_is_published(world)
    world.stop("labour-relay")
    world.complete(poisoned)
    world.complete(healthy)
    world.sql(
        "labour",
        """UPDATE outbox SET attributes = attributes || jsonb_build_object('spoilt', repeat('x', 1025)), attempts = 9
        WHERE ordering_key = $1 AND topic = 'labour.completed'""",
        str(poisoned.id),
    )
    world.start("labour-relay")

    world.until_everyone_is_told(healthy, COMPLETE)
    [parked] = until(lambda: world.fern("outbox", "ls", "--parked")["items"], what="it is parked")
    assert world.texts(poisoned) == {"Grace": []}

    world.sql("labour", "UPDATE outbox SET attributes = attributes - 'spoilt' WHERE attributes ? 'spoilt'")
    world.fern("outbox", "retry", parked["event_id"])
    world.until_everyone_is_told(poisoned, COMPLETE)


def test_an_unwanted_event_is_discarded_with_one_command_and_later_ones_are_published(world: World) -> None:
    labour = world.plan("Grace")
    _until_all_is_published(world)
    world.stop("labour-relay")
    world.begin(labour)
    world.complete(labour)
    rows = world.fern("outbox", "ls", f"--labour={labour.id}")["items"]
    [begun] = [row for row in rows if row["type"] == "labour.begun"]

    world.fern("outbox", "discard", begun["event_id"])
    world.start("labour-relay")

    world.until_everyone_is_told(labour, COMPLETE)


def _states(world: World, labour: PlannedLabour) -> dict[str, str]:
    rows = world.sql("notification", "SELECT event_type, state FROM notification WHERE labour_id = $1", labour.id)
    return {row["event_type"]: row["state"] for row in rows}


def _told(world: World, labour: PlannedLabour) -> list[tuple[str, str, str]]:
    items = world.request(labour, "GET", "/told")["items"]
    return [(item["name"], item["event_type"], item["status"]) for item in items]


def _until_all_is_published(world: World) -> None:
    until(
        lambda: world.count("labour", "outbox WHERE published_at IS NULL AND discarded_at IS NULL") == 0,
        what="all is published",
    )

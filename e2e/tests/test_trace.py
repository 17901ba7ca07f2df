"""`fern trace` and `fern audit` on a running system: the whole path of an event without phone numbers, and no false finding."""

import asyncio
from datetime import datetime
from uuid import UUID

import pytest

from e2e.support.background_load import BackgroundLoad
from e2e.support.waiting import until
from e2e.support.world import COMPLETE, PlannedLabour, World
from fern.audit.auditor import audit
from fern.errors import FernError
from fern.trace import Journey, journey


@pytest.fixture(scope="module")
def labour(world: World) -> PlannedLabour:
    """Completed; both subscribers have the text, and the labour shows it."""
    labour = world.plan("Grace", "Alan")
    world.complete(labour)
    world.until_everyone_is_told(labour, COMPLETE)
    delivered = "told WHERE labour_id = $1 AND status = 'delivered'"
    until(lambda: world.count("labour", delivered, labour.id) == 2, what="the labour shows both texts as delivered")
    world.until_nothing_is_lost_or_doubled(labour)
    return labour


def completed(world: World, labour: PlannedLabour) -> Journey:
    events = journey(world.settings, str(labour.id)).steps
    return journey(world.settings, next(step.facts["event"] for step in events if step.hop == "labour.completed"))


def test_the_trace_of_a_labour_has_its_events_in_order_with_their_effects(world: World, labour: PlannedLabour) -> None:
    whole = journey(world.settings, str(labour.id))

    hops = [step.hop for step in whole.steps]
    assert hops[:4] == ["labour.planned", "subscriber.added", "subscriber.added", "labour.completed"]
    assert sorted(hops[4:]) == ["notification.delivered"] * 2 + ["notification.sent"] * 2
    assert [step.facts["version"] for step in whole.steps[:4]] == [1, 2, 3, 4]
    claimed = [step.facts["claimed by"] for step in whole.steps]
    assert claimed == [None, "notification", "notification", "notification, statistics"] + ["labour"] * 4
    assert whole.steps[3].facts["messages"] == "2 of 2 sent"


def test_an_event_is_followed_from_the_request_to_the_phones_and_back(world: World, labour: PlannedLabour) -> None:
    event = completed(world, labour)

    facts = {step.hop: step.facts for step in event.steps}
    assert facts["request"][""] == f"PUT /api/v1/labours/{labour.id}/complete"
    assert facts["request"]["idempotency key"] == f"complete-{labour.id}"
    assert facts["committed"]["version"] == 4
    assert facts["published"]["message id"] == facts["claimed"]["message id"], "the bus's own id of the message"
    assert sorted(step.facts["by"] for step in event.steps if step.hop == "claimed") == ["notification", "statistics"]
    texts = [message["sid"] for phone in labour.people.values() for message in world.messages(phone)]
    assert {step.facts["sid"] for step in event.steps if step.hop == "SMS sent"} == set(texts)
    assert [step.facts["status"] for step in event.steps if step.hop == "told"] == ["delivered", "delivered"]
    assert sum(step.hop == "status claimed" for step in event.steps) == 4
    times = [datetime.fromisoformat(step.at) for step in event.steps if step.at]
    assert times == sorted(times)
    assert event.steps[0].hop == "request"
    assert event.steps[0].after_ms == 0


def test_the_trace_of_a_status_event_leads_back_to_its_cause(world: World, labour: PlannedLabour) -> None:
    event = completed(world, labour)
    sent = next(step.facts["event"] for step in event.steps if step.hop == "notification.sent")

    back = {step.hop: step.facts for step in journey(world.settings, sent).steps}

    assert back["caused by"] == {"event": event.id}
    assert back["claimed"]["by"] == "labour"


def test_a_trace_names_people_and_contains_no_phone_number_and_no_text(world: World, labour: PlannedLabour) -> None:
    event = completed(world, labour)

    told = world.fern("trace", event.id)

    for hop, fact in (("SMS delivered", "to"), ("told", "person")):
        assert sorted(step.facts[fact] for step in event.steps if step.hop == hop) == ["Alan", "Grace"]
    assert "SMS delivered" in told
    assert "to Grace" in told
    for secret in ("The baby is here", *labour.people.values()):
        assert secret not in told


def test_two_people_with_the_same_name_are_told_apart_by_their_ids(world: World) -> None:
    labour = world.plan("Grace")
    world.subscribe(labour, "Grace")
    world.complete(labour)

    def called() -> set[str]:
        return {step.facts["to"] for step in completed(world, labour).steps if step.hop == "SMS sent"}

    until(lambda: len(called()) == 2, what="both texts are sent")
    assert all(UUID(name.removeprefix("Grace ")) for name in called())


def test_a_repeated_delivery_is_shown_as_absorbed(world: World) -> None:
    labour = world.plan("Grace")
    world.complete(labour)
    world.until_everyone_is_told(labour, COMPLETE)
    event = completed(world, labour)

    again = "UPDATE outbox SET published_at = NULL, replayed_at = clock_timestamp() WHERE event_id = $1"
    again += " AND published_at IS NOT NULL RETURNING 1"
    until(lambda: world.sql("labour", again, UUID(event.id)), what="it is published, and now due again")

    def absorbed() -> list[int]:
        steps = journey(world.settings, event.id).steps
        return [step.facts["of which absorbed"] for step in steps if step.hop == "claimed"]

    until(lambda: absorbed() == [1, 1], what="the second delivery is counted, by both consumers")
    assert sum(step.hop == "SMS sent" for step in journey(world.settings, event.id).steps) == 1


def test_an_event_whose_outbox_row_is_deleted_is_traced_as_far_as_possible(world: World) -> None:
    forgotten = UUID("01500000-0000-7000-8000-000000000001")  # of 2015: older than what an audit looks at
    claim = "INSERT INTO processed_event (consumer, event_id, status, completed_at) VALUES ('labour', $1, 'COMPLETED', now())"
    world.sql("labour", claim, forgotten)

    told = journey(world.settings, str(forgotten))

    world.sql("labour", "DELETE FROM processed_event WHERE event_id = $1", forgotten)
    assert [step.hop for step in told.steps] == ["claimed"]


@pytest.mark.parametrize("unknown", ["01a00000-0000-7000-8000-000000000000", "not-an-id"])
def test_an_unknown_id_is_refused_with_a_command_to_try(world: World, unknown: str) -> None:
    with pytest.raises(FernError) as refused:
        journey(world.settings, unknown)

    assert unknown in refused.value.message
    assert refused.value.command


def test_an_audit_of_a_system_under_load_has_no_false_finding(world: World, load: BackgroundLoad) -> None:
    before = _findings(world, overdue=0)  # left by other tests, or still being processed
    during = [_findings(world, overdue=60) - before for _ in range(4)]

    load.assert_everyone_is_told_once()
    assert during == [set()] * 4
    until(lambda: _findings(world, overdue=0) <= before, what="everything is processed")


def _findings(world: World, overdue: float) -> set[tuple[str, str]]:
    """The stage and the event of each; how late an event is changes from one audit to the next."""
    sandbox, bus = world.settings.url("sms-sandbox"), world.settings.url("pubsub-http")
    report = asyncio.run(audit(world.urls, sandbox=sandbox, bus=bus, overdue_seconds=overdue))
    return {(finding.stage, finding.event_id) for finding in report.findings}

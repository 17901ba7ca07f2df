"""One trace from the HTTP request to `told`, read from what the processes send to a collector."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from e2e.support.collector import Collector, ReceivedSpan
from e2e.support.waiting import until
from e2e.support.world import BEGUN, COMPLETE, PlannedLabour, World
from messaging import telemetry
from messaging.masking import mask

REQUEST = "PUT /api/v1/labours/{labour_id}/complete"
CALLBACK = "POST /webhooks/twilio/status"


def names(spans: Sequence[ReceivedSpan]) -> Counter[tuple[str, str]]:
    return Counter((span.process, span.name) for span in spans)


def trace_of_completion(collector: Collector, labour: PlannedLabour, *needed: str) -> list[ReceivedSpan]:
    """The trace of the request that completed the labour, once it has spans of all these names."""

    def found() -> list[ReceivedSpan]:
        traces = collector.traces_of(labour.id).values()
        return next((one for one in traces if any(span.name == REQUEST for span in one)), [])

    def complete(spans: list[ReceivedSpan]) -> bool:
        return set(needed) <= {span.name for span in spans}

    return until(found, complete, what=f"the trace has {', '.join(needed)}")


def test_one_trace_leads_from_the_request_to_told(world: World, collector: Collector) -> None:
    labour = world.plan("Grace")

    world.complete(labour)
    world.until_everyone_is_told(labour, COMPLETE)
    spans = trace_of_completion(collector, labour, CALLBACK, "process labour", "process statistics")
    until(lambda: world.request(labour, "GET", "/told")["items"], what="the labour shows who was told")

    parents = {span.span_id: span for span in spans}
    ways = {(parents[span.parent_id].name, span.name) for span in spans if span.parent_id in parents}
    assert {
        (REQUEST, "create labour.completed"),
        ("create labour.completed", "publish labour.completed"),
        ("create labour.completed", "process notification"),
        ("create labour.completed", "process statistics"),
        ("process notification", "send sms"),
        ("process notification", "publish notification.sent"),
        ("process notification", "process labour"),
        ("send sms", CALLBACK),
    } <= ways
    roots = [span for span in spans if not span.parent_id]
    assert [span.name for span in roots] == [REQUEST]
    assert {span.process for span in spans} == {
        "labour-api", "labour-relay", "labour-consumer", "labour-statistics",
        "notification-api", "notification-consumer", "notification-dispatcher", "notification-relay",
    }  # fmt: skip


def test_the_trace_of_the_caller_goes_on(world: World, collector: Collector) -> None:
    labour = world.plan("Grace")
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    labour.mother["traceparent"] = f"00-{trace_id}-00f067aa0ba902b7-01"

    world.complete(labour)

    spans = trace_of_completion(collector, labour, "send sms")
    assert {span.trace_id for span in spans} == {trace_id}


def test_a_request_that_is_not_sampled_leaves_no_span_in_any_process(world: World, collector: Collector) -> None:
    labour = world.plan("Grace")
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4737"
    labour.mother["traceparent"] = f"00-{trace_id}-00f067aa0ba902b7-00"

    world.complete(labour)
    world.until_everyone_is_told(labour, COMPLETE)
    until(
        partial(world.count, "notification", "outbox WHERE topic = 'notification.delivered' AND ordering_key = $1",
                str(labour.id)),
        what="the provider has called back",
    )  # fmt: skip
    later = world.plan("Alan")
    world.complete(later)
    trace_of_completion(collector, later, "send sms", CALLBACK)

    assert [span for span in collector.spans if span.trace_id == trace_id] == []
    planned = {span.name for spans in collector.traces_of(labour.id).values() for span in spans}
    assert [one for one in planned if one == CALLBACK or "notification." in one] == [], "nor in a trace of its own"
    stored = world.sql("labour", "SELECT attributes FROM outbox WHERE ordering_key = $1", str(labour.id))
    assert not any(trace_id in row[0] for row in stored), "what no process will read is not stored"


def test_after_a_crash_the_question_and_the_next_attempt_are_in_the_same_trace(
    world: World, collector: Collector
) -> None:
    labour = world.plan("Grace")

    world.crash("notification-dispatcher", "dispatcher.after_take_before_call", lambda: world.complete(labour))
    world.start("notification-dispatcher")
    world.until_everyone_is_told(labour, COMPLETE)

    spans = trace_of_completion(collector, labour, "ask about sms", "send sms")
    calls = [span for span in spans if span.name in ("ask about sms", "send sms")]
    assert [(span.name, span.attributes["fern.sms.attempt"]) for span in calls][-2:] == [
        ("ask about sms", 1),
        ("send sms", 2),
    ]
    assert not any(span.attributes["fern.sms.found"] for span in calls[:-1])


def test_a_repeated_delivery_is_in_the_trace_and_says_that_it_was_absorbed(world: World, collector: Collector) -> None:
    labour = world.plan("Grace")
    world.begin(labour)
    world.until_everyone_is_told(labour, BEGUN)  # so that its next event is the completion

    world.crash("notification-consumer", "consumer.after_commit_before_ack", lambda: world.complete(labour))
    world.start("notification-consumer")
    world.until_everyone_is_told(labour, BEGUN, COMPLETE)

    def repeats() -> int:
        spans = trace_of_completion(collector, labour, "process notification")
        return sum(span.attributes.get("fern.claims.already_completed", 0) for span in spans)

    until(repeats, what="the trace has the repeat")


def test_a_batch_has_a_span_in_each_trace_or_a_link_to_it(world: World, collector: Collector) -> None:
    labours = [world.plan("Grace") for _ in range(telemetry.OWN + 1)]  # a batch of more would leave some of them out
    for labour in labours:
        until(
            partial(world.count, "notification", "roster_member WHERE labour_id = $1", labour.id),
            what="the person was added, so that the batch has completions only",
        )
    world.freeze("notification-consumer")
    for labour in labours:
        world.complete(labour)
    traces = [trace_of_completion(collector, labour, "publish labour.completed")[0].trace_id for labour in labours]
    world.resume("notification-consumer")
    for labour in labours:
        world.until_everyone_is_told(labour, COMPLETE)

    def reached() -> set[str]:
        processed = [span for span in collector.spans if span.name == "process notification"]
        return {one for span in processed for one in (span.trace_id, *span.links)}

    until(reached, lambda found: set(traces) <= found, what="a span or a link for each labour")
    sent = [trace_of_completion(collector, labour, "send sms") for labour in labours]
    assert [spans[0].trace_id for spans in sent] == traces


def test_nothing_personal_is_in_any_span(world: World, collector: Collector) -> None:
    """All that this collector was ever sent, by this test and those that ran before it in the same world."""
    labour = world.plan("Wilhelmina")
    world.begin(labour)
    world.until_everyone_is_told(labour, BEGUN)
    world.complete(labour)
    world.until_everyone_is_told(labour, BEGUN, COMPLETE)
    trace_of_completion(collector, labour, CALLBACK, "process labour")

    sent = b"".join(collector.bodies)
    for personal in (labour.people["Wilhelmina"].removeprefix("+"), "Wilhelmina", "Ada", "Reply STOP", "Nearly"):
        assert personal.encode() not in sent, personal
    texts = {value for span in collector.spans for value in span.attributes.values() if isinstance(value, str)}
    assert {one for one in texts if mask(one) != one} == set()

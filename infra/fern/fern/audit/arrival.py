"""What has not reached its next stage: on its way, late, stuck or lost.

on its way  it had less time than `overdue`; only counted
late        it is overdue, and something will still bring it: a row of the outbox, a message on the bus, a dispatcher
stuck       an operator has to decide: parked, dead-lettered, in doubt for longer than the provider is asked
lost        nothing can bring it: published, not claimed, not dead-lettered, and not on the bus

A subscription whose oldest message is overdue counts as having every event that its consumer has not claimed: the bus does not
say which messages it has. If the bus does not answer, the same is assumed for as long as the bus keeps a message.
"""

from datetime import datetime, timedelta
from typing import Any

from fern.audit.run import AuditRun, Event
from fern.settings import CONSUMERS

# An unknown outcome is resolved within the quarantine (15 minutes live) if the provider answers and the policy is not `hold`.
DECIDED_WITHIN = timedelta(minutes=30)


def judge_publishing(run: AuditRun, source: str, event: Event) -> None:
    report, stage, event_id, topic = run.report, run.report.stages["published"], event["event_id"], event["topic"]
    stage.due += 1
    if event["published_at"]:
        stage.done += 1
    elif event["discarded_at"]:
        stage.held += 1
        report.discarded += 1
    elif event["parked_at"]:
        stage.held += 1
        report.parked += 1
        what = f"The bus refused this {topic} until it was parked; later events of its labour wait behind it."
        report.add("stuck", event_id, "published", what, f"fern outbox retry {event_id}")
    else:
        stage.waiting += 1
        if event["since"] < run.overdue_before:
            reason, command = _why_unpublished(run, source, event)
            what = f"This {topic} has been in the outbox for {_age(run, event['since'])}: {reason}."
            report.add("late", event_id, "published", what, command)


def _why_unpublished(run: AuditRun, source: str, event: Event) -> tuple[str, str]:
    if event["is_behind_a_parked"]:
        return "an earlier event of its labour is parked", f"fern outbox ls --labour {event['ordering_key']}"
    if event["next_attempt_at"] and event["next_attempt_at"] > run.now:
        again = (event["next_attempt_at"] - run.now).total_seconds()
        code = (event["last_error"] or "").partition(":")[0]
        return f"the bus rejected it {event['attempts']} times ({code}); next attempt in {again:.0f} s", (
            f"fern outbox ls --labour {event['ordering_key']}"
        )
    return "it waits for a relay, or for the bus", f"fern logs {source}-relay"


def judge_unclaimed(run: AuditRun, taker: str, event: Event) -> None:
    """Report a published event that its consumer has not claimed as stuck, late or lost."""
    report, stage, event_id, topic = run.report, run.report.stages["claimed"], event["event_id"], event["topic"]
    subscription, replay = f"{taker}.{topic}", f"fern replay --labour {event['ordering_key']} --type {topic}"
    if reason := run.dead.get((taker, str(event_id))):
        stage.held += 1
        report.dead += 1
        what = f"The {taker} consumer could not handle this {topic} ({reason}); it is among the dead letters."
        report.add("stuck", event_id, "claimed", what, f"fern dlq redrive --event {event_id}")
    elif event["published_at"] > run.overdue_before:
        stage.waiting += 1
    elif reason := _why_unclaimed(run, subscription, topic, event["published_at"]):
        stage.waiting += 1
        what = f"This {topic} was published {_age(run, event['published_at'])} ago: {reason}."
        asked = run.backlog is not None
        report.add("late", event_id, "claimed", what, f"fern logs {_process(taker)}" if asked else replay)
    else:
        what = f"This {topic} was published, and the {taker} consumer has neither claimed nor dead-lettered it."
        report.add("lost", event_id, "claimed", f"{what} It is not on the bus any more.", replay)


def _process(consumer: str) -> str:
    service = CONSUMERS[consumer]
    return f"{service}-{'consumer' if service == consumer else consumer}"


def _why_unclaimed(run: AuditRun, subscription: str, topic: str, published_at: datetime) -> str | None:
    """What the event waits for; None if nothing can bring it."""
    dead = run.backlog.get(f"{topic}.dlq") if run.backlog else None
    if dead and dead.unacked > run.dead_seen.get(topic, 0):
        return f"{topic}.dlq has {dead.unacked} dead letters, and another command is looking at some of them"
    if published_at < run.now - run.retention:
        return None
    if run.backlog is None:
        return f"the bus was not asked whether {subscription} still has it"
    waiting = run.backlog.get(subscription)
    if waiting is None or waiting.oldest_seconds < run.overdue.total_seconds():
        return None
    return (
        f"{subscription} has {waiting.unacked} unacknowledged messages, {waiting.leased} of them leased, "
        f"the oldest for {waiting.oldest_seconds:.0f} s"
    )


def judge_unsettled(run: AuditRun, message: Any) -> None:
    """Report a message of the ledger without a final state, if it is stuck or late."""
    stage, state, since = run.report.stages["texts"], message["state"], message["in_doubt_at"] or message["created_at"]
    stage.due += 1
    if state == "IN_DOUBT" and since < run.now - DECIDED_WITHIN:
        stage.held += 1
        what = f"Message {message['id']} about this event has been IN_DOUBT for {_age(run, since)}: an operator has to decide."
        run.report.add("stuck", message["event_id"], "texts", what, f"fern sms ls --state {state}")
        return
    stage.waiting += 1
    if message["created_at"] < run.overdue_before:
        reason = _UNSETTLED[state]
        what = (
            f"Message {message['id']} about this event is {state} after {_age(run, message['created_at'])}: {reason}."
        )
        run.report.add("late", message["event_id"], "texts", what, f"fern sms ls --state {state}")


_UNSETTLED = {
    "PENDING": "it waits for a dispatcher, or for the provider",
    "SENDING": "it waits for the end of its sender's lease",
    "IN_DOUBT": "it waits for the provider's answer",
}


def _age(run: AuditRun, since: datetime) -> str:
    seconds = max((run.now - since).total_seconds(), 0)
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"

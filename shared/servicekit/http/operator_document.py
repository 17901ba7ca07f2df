"""The OpenAPI document of an operators' listener, with an example of each type of the routes that all services have."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from litestar.openapi.spec import SecurityScheme

from messaging.backlog import OutboxBacklog
from messaging.claims import ClaimCounts, ClaimRow
from messaging.outbox import OutboxCounts, OutboxRow
from messaging.outbox_admin import Batch, ChangedEvent, ParkedGroup, Replays
from messaging.retention import RetentionReport
from servicekit.http.api_document import BEARER, Document, Trait
from servicekit.http.operator_api import GivenUp, Parked, Replay
from servicekit.http.pipeline_api import Pipeline, Totals

EVENT = UUID("01995a3c-52f4-7c1d-9a35-4f3d8f2f9a10")
LABOUR = "01995a3c-52f4-7c1d-9a35-4f3d8f2f9a01"
AT = datetime(2026, 11, 18, 6, 0, tzinfo=UTC)

EXAMPLES = (
    EVENT,
    Parked(type="labour.begun", reason="too large"),
    Replay(ordering_key=LABOUR, dry_run=True),
    GivenUp(consumer="notification", event_ids=[EVENT]),
    OutboxRow(
        position=42,
        event_id=EVENT,
        type="labour.begun",
        ordering_key=LABOUR,
        occurred_at=AT,
        recorded_at=AT,
        published_at=None,
        attempts=10,
        next_attempt_at=None,
        parked_at=AT,
        discarded_at=None,
        last_error="InvalidArgument: the message is too large",
        aggregate_version=7,
        request={"method": "PUT", "path": f"/api/v1/labours/{LABOUR}/begin", "key": None},
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        message_id=None,
        replayed_at=None,
        cause_id=None,
    ),
    ParkedGroup(type="labour.begun", reason="too large", count=3, labours=3, oldest_parked_at=AT, event_id=EVENT),
    Batch(items=[ChangedEvent(EVENT, "labour.begun")], next=None),
    Replays(waiting=12, parked=0),
    ClaimRow(
        consumer="notification",
        event_id=EVENT,
        status="COMPLETED",
        claimed_at=AT,
        completed_at=AT,
        message_id="17",
        deliveries=2,
    ),
    RetentionReport(partitions_made=1, rows_deleted=5000, more=True),
    Pipeline(outbox=OutboxBacklog(waiting=2, parked=0, oldest_waiting_seconds=0.2)),
    Totals(
        outbox=OutboxCounts(recorded=120, published=118, waiting=2, parked=0, discarded=0, oldest_waiting_seconds=0.2),
        topics={"labour.begun": 120},
        held={},
        claims=ClaimCounts(completed=118, discarded=0, repeats=3),
    ),
)

DESCRIPTION = """GET needs a token that may read, every other method one that may write. Long work is done in batches: each call
handles one, and `next` is the `after` of the next call. A batch is one transaction, and a call can be repeated."""


def operator_document(title: str, examples: Sequence[object]) -> Document:
    """`examples` has an object for each type that only this service has."""
    return Document(
        title=title,
        description=DESCRIPTION,
        tags={
            "operations": "Outbox, claims, retention and counts.",
            "notifications": "The messages about a labour, in the Notification service.",
        },
        schemes={
            BEARER: SecurityScheme(
                type="http",
                scheme="bearer",
                description="A secret of `OPERATOR_READ_TOKENS` or `OPERATOR_WRITE_TOKENS`.",
            )
        },
        examples=[*EXAMPLES, *examples],
        traits={("POST",): Trait(refuses={403: "insufficient-scope"})},
    )

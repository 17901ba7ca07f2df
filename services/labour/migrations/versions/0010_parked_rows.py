"""An index of parked rows: metrics count them without reading all rows that wait for their next attempt."""

from servicekit.migrations import create_index

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    create_index(
        "outbox_parked",
        "outbox (position) WHERE published_at IS NULL AND discarded_at IS NULL AND parked_at IS NOT NULL",
    )

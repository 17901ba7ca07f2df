"""The statistics of labours: what is known of each contraction, the postings of events, and their balances."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE statistics_contraction (
            id         uuid PRIMARY KEY,
            labour_id  uuid NOT NULL,
            started_at timestamptz,
            ended_at   timestamptz,
            stage      smallint NOT NULL,
            sequence   bigint NOT NULL,
            event_id   uuid NOT NULL
        )
    """)
    op.execute("CREATE INDEX ix_statistics_contraction_labour_id ON statistics_contraction (labour_id)")
    op.execute("""
        CREATE TABLE statistics_posting (
            event_id  uuid NOT NULL,
            what      text NOT NULL,
            labour_id uuid NOT NULL,
            amount    bigint NOT NULL,
            PRIMARY KEY (event_id, what)
        )
    """)
    op.execute("CREATE INDEX ix_statistics_posting_labour_id ON statistics_posting (labour_id)")
    op.execute("""
        CREATE TABLE statistics_balance (
            labour_id uuid NOT NULL,
            what      text NOT NULL,
            amount    bigint NOT NULL,
            PRIMARY KEY (labour_id, what)
        )
    """)

"""Messages have a turn, senders have a rate, and numbers have a count of segments for each day.

Messages of a consumer of the release before get the defaults: the middle priority, and their turn at once. Dispatchers of the
release before need the index `notification_due`. A later release drops it.
"""

from alembic import op

from servicekit.migrations import backfill, create_index

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    # now() is the same for all rows, so the table is not rewritten. Rows that are inserted later have their own time.
    op.execute("""
        ALTER TABLE notification
            ADD COLUMN IF NOT EXISTS priority smallint NOT NULL DEFAULT 2,
            ADD COLUMN IF NOT EXISTS turn timestamptz NOT NULL DEFAULT now()
    """)
    op.execute("ALTER TABLE notification ALTER COLUMN turn SET DEFAULT clock_timestamp()")
    op.execute("CREATE TABLE IF NOT EXISTS sender_rate (sender text PRIMARY KEY, free_at timestamptz NOT NULL)")
    op.execute("""
        CREATE TABLE IF NOT EXISTS number_day (
            day      date NOT NULL,
            phone    text NOT NULL,
            segments integer NOT NULL,
            PRIMARY KEY (day, phone)
        ) WITH (fillfactor = 80)
    """)
    backfill(
        "notification",
        """turn = created_at, priority = CASE event_type
            WHEN 'labour.completed' THEN 0 WHEN 'labour.begun' THEN 1 WHEN 'labour.announced' THEN 3 ELSE 2 END""",
        where="state IN ('AWAITING_CONSENT', 'PENDING', 'SENDING', 'IN_DOUBT')",
    )
    # The pending messages in the order in which they are taken, and the announcements among them by labour, to count them.
    create_index("notification_turn", "notification (priority, turn, next_attempt_at) WHERE state = 'PENDING'")
    create_index("notification_announced", "notification (labour_id) WHERE state = 'PENDING' AND priority = 3")
    create_index("notification_in_doubt", "notification (next_attempt_at) WHERE state = 'IN_DOUBT'")

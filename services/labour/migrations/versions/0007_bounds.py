"""How many announcements a labour has, one approved subscriber for each number, and what an account has used in a day.

Announcements that a process of the release before posts after the backfill are not counted: the limit bounds storage, so it need
not be exact.
"""

from alembic import op

from servicekit.migrations import backfill, create_index

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute("ALTER TABLE labour ADD COLUMN IF NOT EXISTS announcements integer NOT NULL DEFAULT 0")
    op.execute("""
        CREATE TABLE IF NOT EXISTS account_day (
            account  text NOT NULL,
            day      date NOT NULL,
            labours  integer NOT NULL,
            people   integer NOT NULL,
            segments integer NOT NULL,
            keys     integer NOT NULL CONSTRAINT account_day_keys CHECK (keys <= 2000),
            PRIMARY KEY (account, day)
        )
    """)
    op.execute("CREATE INDEX IF NOT EXISTS account_day_day ON account_day (day)")
    posted = "labour_update WHERE labour_update.labour_id = labour.id AND kind = 'announcement'"
    backfill("labour", f"announcements = (SELECT count(*) FROM {posted})", where=f"EXISTS (SELECT FROM {posted})")  # noqa: S608
    # A request with a number that is on the list is stored like any other.
    create_index("subscriber_approved_once", "subscriber (labour_id, phone) WHERE state = 'approved'", unique=True)
    # contract: the release before works without it. Its rule refuses a number twice; of two requests at once, one may remain.
    op.execute("DROP INDEX IF EXISTS subscriber_once_per_labour")

"""How many contractions a labour has ever had. Those that were deleted before are not counted, nor are those that a process of
the release before starts after the backfill: the limit bounds storage, so it need not be exact.
"""

from alembic import op

from servicekit.migrations import backfill

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.execute("ALTER TABLE labour ADD COLUMN IF NOT EXISTS contractions_ever integer NOT NULL DEFAULT 0")
    started = "contraction WHERE contraction.labour_id = labour.id"
    backfill("labour", f"contractions_ever = (SELECT count(*) FROM {started})", where=f"EXISTS (SELECT FROM {started})")  # noqa: S608

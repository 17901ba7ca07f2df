"""A message that waited for consent has the time from which it could be sent: metrics measure from it."""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.execute("ALTER TABLE notification ADD COLUMN IF NOT EXISTS released_at timestamptz")

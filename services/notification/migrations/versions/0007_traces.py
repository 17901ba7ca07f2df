"""A message keeps the trace context of its event."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute("ALTER TABLE notification ADD COLUMN IF NOT EXISTS traceparent text")

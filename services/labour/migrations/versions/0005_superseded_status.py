"""A message may have the status `superseded`."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("""
        ALTER TABLE told DROP CONSTRAINT told_status_check, ADD CONSTRAINT told_status_check
        CHECK (status IN ('superseded', 'sent', 'delivered', 'failed'))
    """)

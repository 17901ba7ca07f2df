"""The ledger stores the order of the messages to one person about one labour, and has the state SUPERSEDED."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("ALTER TABLE notification ADD COLUMN sequence bigint")  # none in earlier messages: they have no order
    op.execute("""
        ALTER TABLE notification DROP CONSTRAINT notification_state_check, ADD CONSTRAINT notification_state_check
        CHECK (state IN
            ('PENDING', 'SENDING', 'IN_DOUBT', 'SENT', 'DELIVERED', 'UNDELIVERED', 'FAILED', 'SUPERSEDED'))
    """)
    op.execute("CREATE INDEX notification_order ON notification (labour_id, person_id, sequence)")
    op.execute("DROP INDEX ix_notification_labour_id")  # the new one begins with the same column

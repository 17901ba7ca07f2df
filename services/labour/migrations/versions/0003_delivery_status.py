"""`told.news` is renamed to `told.status`; the rows stay."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("ALTER TABLE told RENAME COLUMN news TO status")
    op.execute("ALTER TABLE told RENAME CONSTRAINT told_news_check TO told_status_check")

"""Events have a sequence for each labour, and consumers may remember the last one."""

from messaging.schema import create_sequences_v1, create_watermarks_v1

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    create_sequences_v1()
    create_watermarks_v1()

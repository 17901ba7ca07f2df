"""Functions that change the partitions of the claims, for processes that do not own the tables."""

from messaging.schema import create_partition_functions_v1

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    create_partition_functions_v1()

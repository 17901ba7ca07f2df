"""Outbox rows and claims record how their event was caused, published and delivered."""

from messaging.schema import add_journeys_v2

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    add_journeys_v2()

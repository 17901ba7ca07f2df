"""An index of the questions for consent, by number: whether the last one arrived decides when the number is asked again."""

from servicekit.migrations import create_index

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    create_index("notification_question", "notification (phone, created_at) WHERE event_type = 'consent.requested'")

"""Consent belongs to a number, and opt-outs are a part of it. Messages may wait for it.

Processes of the release before go on with the table of opt-outs until they are replaced. Triggers keep both tables the same
meanwhile: a STOP that one release receives holds for the other. A later release drops the triggers and the table.
"""

from alembic import op

from servicekit.migrations import create_index, replace_check

revision = "0005"
down_revision = "0004"

# A change that the other trigger made is at a depth of 2, and is not copied back.
_TO_CONSENT = """
    CREATE OR REPLACE FUNCTION suppression_to_consent() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF pg_trigger_depth() > 1 THEN
            RETURN NULL;
        ELSIF TG_OP = 'INSERT' THEN
            INSERT INTO consent (phone, state, answered_at) VALUES (NEW.phone, 'REFUSED', NEW.since)
            ON CONFLICT (phone) DO UPDATE SET state = excluded.state, answered_at = excluded.answered_at;
        ELSE
            UPDATE consent SET state = 'GRANTED', answered_at = clock_timestamp(),
                agreed_at = coalesce(agreed_at, clock_timestamp()) WHERE phone = OLD.phone;
        END IF;
        RETURN NULL;
    END $$
"""
_TO_SUPPRESSION = """
    CREATE OR REPLACE FUNCTION consent_to_suppression() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF pg_trigger_depth() > 1 THEN
            RETURN NULL;
        ELSIF NEW.state = 'REFUSED' THEN
            INSERT INTO suppression (phone) VALUES (NEW.phone) ON CONFLICT DO NOTHING;
        ELSE
            DELETE FROM suppression WHERE phone = NEW.phone;
        END IF;
        RETURN NULL;
    END $$
"""


def upgrade() -> None:
    op.execute("""
        CREATE TABLE IF NOT EXISTS consent (
            phone       text PRIMARY KEY,
            state       text NOT NULL CHECK (state IN ('ASKED', 'GRANTED', 'REFUSED')),
            asked_at    timestamptz,
            agreed_at   timestamptz,
            answered_at timestamptz
        )
    """)
    op.execute(_TO_CONSENT)
    op.execute(_TO_SUPPRESSION)
    op.execute("""
        CREATE OR REPLACE TRIGGER to_consent AFTER INSERT OR DELETE ON suppression
        FOR EACH ROW EXECUTE FUNCTION suppression_to_consent()
    """)
    op.execute("""
        INSERT INTO consent (phone, state, answered_at) SELECT phone, 'REFUSED', since FROM suppression
        ON CONFLICT DO NOTHING
    """)
    op.execute("""
        CREATE OR REPLACE TRIGGER to_suppression AFTER INSERT OR UPDATE OF state ON consent
        FOR EACH ROW EXECUTE FUNCTION consent_to_suppression()
    """)
    op.execute("ALTER TABLE notification ADD COLUMN IF NOT EXISTS consent_required boolean NOT NULL DEFAULT false")
    states = """
        'AWAITING_CONSENT', 'PENDING', 'SENDING', 'IN_DOUBT', 'SENT', 'DELIVERED', 'UNDELIVERED', 'FAILED', 'SUPERSEDED'
    """
    replace_check("notification", "notification_state_check", f"state IN ({states})")
    # Only waiting rows are indexed: by number, to apply an answer, and by time, to expire them.
    create_index("notification_waiting", "notification (phone) WHERE state = 'AWAITING_CONSENT'")
    create_index("notification_waiting_since", "notification (created_at) WHERE state = 'AWAITING_CONSENT'")

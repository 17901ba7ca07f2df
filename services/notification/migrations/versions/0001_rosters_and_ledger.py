"""Rosters, the ledger of notifications, suppressed numbers, claims, and the outbox."""

from alembic import op

from messaging.schema import create_claims_v1, create_outbox_v1

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("CREATE TABLE roster (labour_id uuid PRIMARY KEY, version integer NOT NULL)")
    op.execute("""
        CREATE TABLE roster_member (
            labour_id       uuid NOT NULL REFERENCES roster (labour_id),
            person_id       uuid NOT NULL,
            name            text NOT NULL,
            phone           text NOT NULL,
            added_version   integer NOT NULL,
            removed_version integer CHECK (removed_version > added_version),
            PRIMARY KEY (labour_id, person_id)
        )
    """)
    op.execute("""
        CREATE TABLE notification (
            id              uuid PRIMARY KEY,
            event_id        uuid NOT NULL,
            event_type      text NOT NULL,
            labour_id       uuid NOT NULL,
            person_id       uuid NOT NULL,
            person_name     text NOT NULL,
            phone           text NOT NULL,
            channel         text NOT NULL,
            body            text NOT NULL,
            segments        smallint NOT NULL,
            state           text NOT NULL DEFAULT 'PENDING' CHECK (state IN
                ('PENDING', 'SENDING', 'IN_DOUBT', 'SENT', 'DELIVERED', 'UNDELIVERED', 'FAILED')),
            attempt         integer NOT NULL DEFAULT 0,
            next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            lease_until     timestamptz,
            sid             text,
            failure         text,
            failure_code    integer,
            created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
            sending_at      timestamptz,
            in_doubt_at     timestamptz,
            sent_at         timestamptz,
            delivered_at    timestamptz,
            CONSTRAINT notification_once_per_person UNIQUE (event_id, person_id, channel)
        ) WITH (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 80)
    """)
    op.execute("CREATE INDEX ix_notification_labour_id ON notification (labour_id)")
    # Only rows that are still to be sent or resolved are indexed.
    op.execute(
        "CREATE INDEX notification_due ON notification (state, next_attempt_at) WHERE state IN ('PENDING', 'IN_DOUBT')"
    )
    op.execute("CREATE INDEX notification_leased ON notification (lease_until) WHERE state = 'SENDING'")
    op.execute(
        "CREATE TABLE suppression (phone text PRIMARY KEY, since timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
    create_claims_v1()
    create_outbox_v1()

"""Labours with all that belongs to them, the outbox, claims, idempotency keys, and rate limits."""

from alembic import op

from messaging.schema import create_claims_v1, create_idempotency_keys_v1, create_outbox_v1, create_rate_limits_v1

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE labour (
            id             uuid PRIMARY KEY,
            mother_name    text NOT NULL,
            first_labour   boolean NOT NULL,
            phase          varchar(20) NOT NULL CHECK (phase IN
                ('planned', 'early', 'active', 'transition', 'pushing', 'complete')),
            planned_at     timestamptz NOT NULL,
            begun_at       timestamptz,
            completed_at   timestamptz CHECK ((phase = 'complete') = (completed_at IS NOT NULL)),
            announced_at   timestamptz,
            roster_version integer NOT NULL CHECK (roster_version >= 0),
            version        integer NOT NULL
        )
    """)
    op.execute("""
        CREATE TABLE subscriber (
            id            uuid PRIMARY KEY,
            labour_id     uuid NOT NULL REFERENCES labour (id),
            name          text NOT NULL,
            phone         text NOT NULL,
            subscribed_at timestamptz NOT NULL,
            CONSTRAINT subscriber_once_per_labour UNIQUE (labour_id, phone)
        )
    """)
    op.execute("""
        CREATE TABLE contraction (
            id         uuid PRIMARY KEY,
            labour_id  uuid NOT NULL REFERENCES labour (id),
            started_at timestamptz NOT NULL,
            ended_at   timestamptz CHECK (ended_at > started_at),
            intensity  smallint CHECK (intensity BETWEEN 0 AND 10),
            CHECK ((ended_at IS NULL) = (intensity IS NULL))
        )
    """)
    op.execute("CREATE INDEX ix_contraction_labour_id ON contraction (labour_id)")
    op.execute("CREATE UNIQUE INDEX contraction_one_running ON contraction (labour_id) WHERE ended_at IS NULL")
    op.execute("""
        CREATE TABLE announcement (
            id           uuid PRIMARY KEY,
            labour_id    uuid NOT NULL REFERENCES labour (id),
            text         text NOT NULL,
            announced_at timestamptz NOT NULL
        )
    """)
    op.execute("CREATE INDEX ix_announcement_labour_id ON announcement (labour_id)")
    op.execute("""
        CREATE TABLE told (
            notification_id uuid PRIMARY KEY,
            labour_id       uuid NOT NULL,
            person_id       uuid NOT NULL,
            event_id        uuid NOT NULL,
            event_type      text NOT NULL,
            channel         text NOT NULL,
            news            text NOT NULL CHECK (news IN ('sent', 'delivered', 'failed')),
            rank            smallint NOT NULL,
            at              timestamptz NOT NULL,
            reason          text
        )
    """)
    op.execute("CREATE INDEX ix_told_labour_id ON told (labour_id)")
    create_outbox_v1()
    create_claims_v1()
    create_idempotency_keys_v1()
    create_rate_limits_v1()

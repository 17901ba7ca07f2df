"""Labours with all that belongs to them, the outbox, claims, idempotency keys, and rate limits."""

from alembic import op

from messaging.schema import create_claims_v1, create_outbox_v1
from servicekit.schema import create_idempotency_keys_v1, create_rate_limits_v1

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE labour (
            id             uuid PRIMARY KEY,
            mother_id      text NOT NULL,
            mother_name    text NOT NULL,
            first_labour   boolean NOT NULL,
            phase          varchar(20) NOT NULL CHECK (phase IN
                ('planned', 'early', 'active', 'transition', 'pushing', 'complete')),
            planned_at     timestamptz NOT NULL,
            begun_at       timestamptz,
            completed_at   timestamptz CHECK ((phase = 'complete') = (completed_at IS NOT NULL)),
            announced_at   timestamptz,
            notes          text,
            roster_version integer NOT NULL CHECK (roster_version >= 0),
            version        integer NOT NULL
        )
    """)
    op.execute("CREATE INDEX ix_labour_mother_id ON labour (mother_id)")
    op.execute("CREATE UNIQUE INDEX labour_one_unfinished ON labour (mother_id) WHERE phase <> 'complete'")
    op.execute("""
        CREATE TABLE subscriber (
            id            uuid PRIMARY KEY,
            labour_id     uuid NOT NULL REFERENCES labour (id),
            user_id       text,
            name          text NOT NULL,
            phone         text NOT NULL,
            state         varchar(20) NOT NULL CHECK (state IN ('requested', 'approved', 'removed', 'left', 'blocked')),
            role          varchar(20) NOT NULL CHECK (role IN ('birth-partner', 'family-and-friends')),
            channel       varchar(20) NOT NULL CHECK (channel IN ('sms')),
            subscribed_at timestamptz NOT NULL
        )
    """)
    op.execute("CREATE INDEX ix_subscriber_labour_id ON subscriber (labour_id)")
    op.execute("CREATE INDEX ix_subscriber_user_id ON subscriber (user_id)")
    op.execute("""
        CREATE UNIQUE INDEX subscriber_once_per_labour ON subscriber (labour_id, phone)
        WHERE state IN ('requested', 'approved')
    """)
    op.execute("""
        CREATE TABLE invite (
            id         uuid PRIMARY KEY,
            labour_id  uuid NOT NULL REFERENCES labour (id),
            token_hash bytea NOT NULL UNIQUE,
            created_at timestamptz NOT NULL,
            expires_at timestamptz NOT NULL,
            revoked_at timestamptz
        )
    """)
    op.execute("CREATE INDEX ix_invite_labour_id ON invite (labour_id)")
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
        CREATE TABLE labour_update (
            id        uuid PRIMARY KEY,
            labour_id uuid NOT NULL REFERENCES labour (id),
            kind      varchar(20) NOT NULL CHECK (kind IN ('announcement', 'status', 'private')),
            text      text NOT NULL,
            posted_at timestamptz NOT NULL
        )
    """)
    op.execute("CREATE INDEX ix_labour_update_labour_id ON labour_update (labour_id)")
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

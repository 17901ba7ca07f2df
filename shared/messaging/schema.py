"""The tables that every service with an outbox and claims has, for its migrations.

A function here is history once a migration has called it: a change is a new function and a new migration.
"""

from alembic import op


def create_outbox_v1() -> None:
    op.execute("""
        CREATE TABLE outbox (
            position        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            event_id        uuid NOT NULL UNIQUE,
            topic           text NOT NULL,
            ordering_key    text NOT NULL,
            lane            smallint NOT NULL,
            attributes      jsonb NOT NULL,
            payload         text NOT NULL,
            occurred_at     timestamptz NOT NULL,
            recorded_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
            published_at    timestamptz,
            attempts        integer NOT NULL DEFAULT 0,
            next_attempt_at timestamptz,
            last_error      text,
            parked_at       timestamptz,
            discarded_at    timestamptz
        ) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)
    """)
    # Only what is still to be sent is indexed, so a poll costs the same at any size of the table.
    op.execute("""
        CREATE INDEX outbox_pending ON outbox (lane, position)
        WHERE published_at IS NULL AND discarded_at IS NULL
    """)
    op.execute("""
        CREATE INDEX outbox_troubled ON outbox (ordering_key, position)
        WHERE published_at IS NULL AND discarded_at IS NULL AND attempts > 0
    """)
    op.execute("CREATE TABLE outbox_lane (lane smallint PRIMARY KEY)")
    op.execute("INSERT INTO outbox_lane SELECT generate_series(0, 63)")


def create_claims_v1() -> None:
    op.execute("""
        CREATE TABLE processed_event (
            consumer     text NOT NULL,
            event_id     uuid NOT NULL,
            status       text NOT NULL CHECK (status IN ('PROCESSING', 'COMPLETED')),
            claimed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
            completed_at timestamptz,
            PRIMARY KEY (consumer, event_id)
        ) PARTITION BY RANGE (event_id)
    """)
    op.execute("CREATE TABLE processed_event_default PARTITION OF processed_event DEFAULT")


def add_journeys_v2() -> None:
    """What tells the journey of an event: the request that caused it, the bus's id of it, how often it was delivered; and that
    a person has given it up for a consumer.
    """
    op.execute("""
        ALTER TABLE outbox
            ADD COLUMN aggregate_version integer,
            ADD COLUMN request           jsonb,
            ADD COLUMN message_id        text,
            ADD COLUMN replayed_at       timestamptz
    """)
    op.execute("""
        ALTER TABLE processed_event
            ADD COLUMN message_id text,
            ADD COLUMN deliveries integer NOT NULL DEFAULT 1,
            DROP CONSTRAINT processed_event_status_check,
            ADD CONSTRAINT processed_event_status_check CHECK (status IN ('PROCESSING', 'COMPLETED', 'DISCARDED'))
    """)


def create_sequences_v1() -> None:
    """The last sequence of each key whose events are not those of an aggregate. Keys go on after the events they have."""
    op.execute("CREATE TABLE event_sequence (ordering_key text PRIMARY KEY, last bigint NOT NULL)")
    op.execute("""
        INSERT INTO event_sequence (ordering_key, last)
        SELECT ordering_key, count(*) FROM outbox WHERE aggregate_version IS NULL GROUP BY ordering_key
    """)


def create_watermarks_v1() -> None:
    op.execute("""
        CREATE TABLE watermark (
            consumer text NOT NULL,
            source   text NOT NULL,
            subject  text NOT NULL,
            sequence bigint NOT NULL,
            PRIMARY KEY (consumer, source, subject)
        )
    """)

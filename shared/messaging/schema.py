"""The tables that every service with an outbox and claims has, for its migrations.

A function is never changed once a migration has called it: write a new function and a new migration.
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
    """Columns for the path of an event: the request that caused it, the bus's id of it, how often it was delivered. And a status
    of claims for events that an operator has discarded.
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
    """The last sequence of each key whose events are no aggregate's. It begins at the number of its events in the outbox."""
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


def create_partition_functions_v1() -> None:
    """The functions with which retention creates and drops partitions of the claims. They run with the rights of the tables'
    owner; the processes that call them may only read and write rows.
    """
    op.execute("""
        CREATE OR REPLACE FUNCTION first_event_id(of_month date) RETURNS uuid IMMUTABLE LANGUAGE sql AS $$
            SELECT CAST(lpad(to_hex(CAST(extract(epoch FROM of_month) * 1000 AS bigint)), 12, '0') || repeat('0', 20) AS uuid)
        $$
    """)
    op.execute("""
        CREATE OR REPLACE FUNCTION create_claims_partition(of_month date) RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
        DECLARE
            partition text := to_char(of_month, '"processed_event_"YYYY_MM');
            low uuid := public.first_event_id(of_month);
            high uuid := public.first_event_id(CAST(of_month + interval '1 month' AS date));
        BEGIN
            IF extract(day FROM of_month) <> 1 THEN
                RAISE EXCEPTION 'a partition begins on the first day of a month, not on %', of_month;
            END IF;
            EXECUTE format('CREATE TABLE public.%I (LIKE public.processed_event INCLUDING ALL)', partition);
            -- Claims wait while rows of this month are moved out of the default partition, normally none.
            EXECUTE format(
                'WITH moved AS (
                    DELETE FROM public.processed_event_default WHERE event_id >= %L AND event_id < %L RETURNING *)
                INSERT INTO public.%I SELECT * FROM moved', low, high, partition);
            -- For the look at the youngest claim before the partition is dropped, while claims wait. It takes a few pages.
            EXECUTE format('CREATE INDEX ON public.%I USING brin (claimed_at)', partition);
            EXECUTE format(
                'ALTER TABLE public.processed_event ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
                partition, low, high);
        END $$
    """)
    # False if a claim was made since: it stays, whatever the time in its event id.
    op.execute("""
        CREATE OR REPLACE FUNCTION drop_claims_partition(of_month date, before timestamptz) RETURNS boolean
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
        DECLARE
            partition text := to_char(of_month, '"processed_event_"YYYY_MM');
            is_in_use boolean;
        BEGIN
            IF (of_month + interval '1 month') AT TIME ZONE 'UTC' > before THEN
                RAISE EXCEPTION 'the month of % has not ended before %', partition, before;
            END IF;
            EXECUTE format('SELECT EXISTS (SELECT FROM public.%I WHERE claimed_at >= %L)', partition, before) INTO is_in_use;
            IF NOT is_in_use THEN
                EXECUTE format('DROP TABLE public.%I', partition);
            END IF;
            RETURN NOT is_in_use;
        END $$
    """)
    op.execute("REVOKE EXECUTE ON FUNCTION create_claims_partition, drop_claims_partition FROM PUBLIC")

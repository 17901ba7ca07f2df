"""The tables of idempotency keys and rate limits, for the migrations of the services that use them.

A function is never changed once a migration has called it: write a new function and a new migration.
"""

from alembic import op


def create_idempotency_keys_v1() -> None:
    op.execute("""
        CREATE TABLE idempotency_key (
            scope       text NOT NULL,
            key         text NOT NULL,
            fingerprint bytea NOT NULL,
            status      smallint NOT NULL,
            headers     jsonb NOT NULL,
            body        bytea NOT NULL,
            expires_at  timestamptz NOT NULL,
            PRIMARY KEY (scope, key)
        )
    """)
    op.execute("CREATE INDEX idempotency_key_expiry ON idempotency_key (expires_at)")


def create_rate_limits_v1() -> None:
    # Unlogged: counting costs no write-ahead log, and after a crash of the database all counts start at zero.
    op.execute("""
        CREATE UNLOGGED TABLE rate_limit (
            who     text PRIMARY KEY,
            count   integer NOT NULL,
            ends_at timestamptz NOT NULL
        )
    """)
    op.execute("CREATE INDEX rate_limit_end ON rate_limit (ends_at)")

#!/bin/sh
# The entrypoint of the stand-in for PostgreSQL's image: what the real one does, as far as docker-compose.yml uses it.
set -eu
[ "$1" = postgres ] || exec "$@"
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA" /var/run/postgresql
    chown -R postgres:postgres "$PGDATA" /var/run/postgresql
    exec setpriv --reuid=postgres --regid=postgres --init-groups sh "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    echo "$POSTGRES_PASSWORD" >/tmp/password
    # shellcheck disable=SC2086 # several options
    initdb --username=postgres --pwfile=/tmp/password $POSTGRES_INITDB_ARGS
    rm /tmp/password
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl --wait --options="-c listen_addresses=''" start # on the socket only, until the scripts have run
    for file in /docker-entrypoint-initdb.d/*.sql; do
        psql --no-psqlrc --set ON_ERROR_STOP=1 --username=postgres --file="$file"
    done
    pg_ctl --wait --mode=fast stop
    echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
fi
exec "$@"

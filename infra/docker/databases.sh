#!/bin/sh
# The job `databases`: for each service a database and two login roles, which no other role may open: the owner of its tables, for the
# migrations, and the role of its processes, which reads and writes rows. Safe to repeat.
#
# The password of a role is made here once, and is in a volume that only the containers that log in as this role mount. It is made
# again if the file or the role is missing, so a volume can be deleted or restored without the other.
set -eu
umask 077
directory=${PASSWORD_DIRECTORY:-/passwords}
reader=${PASSWORD_READER:-10001} # the user of our images
export PGHOST="${PGHOST:-127.0.0.1}" PGUSER=postgres PGDATABASE=postgres

sql() { psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 "$@"; }

echo "ALTER ROLE postgres PASSWORD NULL; REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC" | sql
for service in labour notification; do
    for name in "$service" "${service}_owner"; do
        file=$directory/$name/pgpass
        role=$(echo "SELECT 1 FROM pg_roles WHERE rolname = '$name'" | sql)
        if [ -z "$role" ] || [ ! -s "$file" ]; then
            # A crash between these steps leaves no file, so the next run makes another password.
            rm -f "$file"
            password=$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')
            [ -n "$role" ] || echo "CREATE ROLE $name LOGIN" | sql
            echo "ALTER ROLE $name PASSWORD '$password'" | sql
            echo "*:*:$service:$name:$password" >"$file.new"
            chown "$reader:$reader" "$file.new"
            mv "$file.new" "$file"
            echo "$name: new password"
        fi
    done
    echo "SELECT 'CREATE DATABASE $service OWNER ${service}_owner' WHERE NOT EXISTS (
        SELECT FROM pg_database WHERE datname = '$service') \\gexec" | sql
    echo "REVOKE ALL ON DATABASE $service FROM PUBLIC" | sql
    # A database of a release without an owner: the tables change hands, and the processes keep the right to read and write.
    sql --single-transaction --dbname "$service" <<END
REASSIGN OWNED BY $service TO ${service}_owner;
GRANT CONNECT ON DATABASE $service TO $service;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO $service;
END
done

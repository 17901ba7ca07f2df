"""Estimates how many replicas and how large a database a number of labours an hour needs, and what that may cost a month.

What a process can do is measured on one machine (docs/performance.md). What a labour does, how uneven the load is and what things
cost are assumptions. So the results are estimates, and right in the order of magnitude only.
"""

import math
from dataclasses import dataclass

# What one labour causes. An assumption: six people who are asked for consent and told four times, and sixty contractions.
PEOPLE = 6
CONTRACTIONS = 60
TEXTS = 5 * PEOPLE  # the question for consent, begun, two announcements, completed
WRITES = (
    1 + PEOPLE + 1 + 2 * CONTRACTIONS + 2 + 2 + 1
)  # planned, people, begun, contractions, phases, announcements, completed
READS = WRITES  # one read for each change
LABOUR_EVENTS = WRITES
NOTIFICATION_EVENTS = 2 * TEXTS  # sent and delivered
CALLBACKS = 2 * TEXTS + PEOPLE  # two statuses of each text, and the answers to the question
FOR_NOTIFICATION = PEOPLE + 4  # people added, begun, two announcements, completed
FOR_STATISTICS = 2 * CONTRACTIONS + 4  # contractions, phases, begun, completed
FOR_LABOUR = NOTIFICATION_EVENTS

PEAK = 3.0  # the busiest minutes have three times the average load
USED = 0.5  # the share of the capacity that is used at the peak; the rest is a reserve
CORES = 2  # of the machine of the measurements: process, PostgreSQL, bus and load generator together
RETENTION_DAYS = 90
KB_PER_EVENT = 2.8  # docs/performance.md, "Over time": database size for each event, the larger of both databases
LARGEST_DISK = 65_536  # GB, of a Cloud SQL instance

# Prices in US dollars, as published for a tier 1 region in the first half of 2026, without free tiers and discounts.
VCPU_SECOND, GIB_SECOND = 0.000018, 0.000002  # Cloud Run with instance-based billing; worker pools may cost less
SQL_VCPU_HOUR, SQL_GIB_HOUR, SQL_GB_MONTH = 0.0413, 0.007, 0.17  # Cloud SQL Enterprise; a standby doubles all three
PUBSUB_TIB = 40.0
SMS_US = 0.0083 + 0.0035  # Twilio to the United States, and a carrier's fee; other countries cost up to ten times that
MONTH_HOURS = 730
SIZES = (1, 2, 4, 8, 16, 32, 64, 96)  # vCPUs of a database
GIB_PER_VCPU = 3.75
INSTANCE_VCPU, INSTANCE_GIB = 1.35, 0.875  # a process, its proxy and its collector
BYTES_PER_DELIVERY = 1000  # the least that Pub/Sub counts for a message


@dataclass(frozen=True)
class Stage:
    """`per_second` and `cpu_us` (CPU time of one piece, in µs) are measured: a row of the table of docs/performance.md."""

    row: str
    per_second: float
    cpu_us: float

    @property
    def database_us(self) -> float:
        """CPU time of PostgreSQL for one piece, at most: what the process left of the machine."""
        return CORES / self.per_second * 1e6 - self.cpu_us


REQUEST = Stage("api | ours, all guards on", 1326, 662)
RELAYED = Stage("relay | ours: ordered, parking and marking", 39_184, 9.64)
CONSUMED = Stage("consumer | ours: batches", 19_797, 25.7)
SENT = Stage("sms | ours: through the ledger", 3005, 204)
STAGES = (REQUEST, RELAYED, CONSUMED, SENT)

# How many pieces of work one labour causes for each process.
WORK: dict[str, tuple[Stage, int]] = {
    "labour-api": (REQUEST, WRITES + READS),
    "labour-relay": (RELAYED, LABOUR_EVENTS),
    "labour-consumer": (CONSUMED, FOR_LABOUR),
    "labour-statistics": (CONSUMED, FOR_STATISTICS),
    "notification-api": (REQUEST, CALLBACKS),
    "notification-relay": (RELAYED, NOTIFICATION_EVENTS),
    "notification-consumer": (CONSUMED, FOR_NOTIFICATION),
    "notification-dispatcher": (SENT, TEXTS),
}

# Database connections that a process may open: docs/operations.md, "Connections". A server needs twice the sum.
CONNECTIONS = {
    "labour-api": 19,
    "labour-relay": 6,
    "labour-consumer": 5,
    "labour-statistics": 5,
    "notification-api": 19,
    "notification-relay": 6,
    "notification-consumer": 5,
    "notification-dispatcher": 12,
}


@dataclass(frozen=True)
class Database:
    vcpus: int
    gigabytes: int
    connections: int  # `max_connections`, at least
    fits: bool  # False if it is larger than the largest instance, or its disk


@dataclass(frozen=True)
class Plan:
    """`texts_per_second` is the rate at the peak that has to be agreed with Twilio. Costs are in US dollars a month."""

    labours_per_hour: float
    processes: dict[str, int]
    databases: dict[str, Database]
    texts_per_second: float
    cloud_run: float
    cloud_sql: float
    pubsub: float
    sms: float

    @property
    def google_cloud(self) -> float:
        return self.cloud_run + self.cloud_sql + self.pubsub


def plan(labours_per_hour: float, *, at_least: int = 2) -> Plan:
    """`at_least` is the number of replicas without any load: with two, one can die and the other goes on."""
    peak = labours_per_hour / 3600 * PEAK
    processes = {
        name: max(at_least, math.ceil(peak * pieces / (stage.per_second * USED)))
        for name, (stage, pieces) in WORK.items()
    }
    databases = {service: _database(service, labours_per_hour, processes) for service in ("labour", "notification")}
    month = labours_per_hour * MONTH_HOURS
    deliveries = FOR_NOTIFICATION + FOR_STATISTICS + FOR_LABOUR
    messages = LABOUR_EVENTS + NOTIFICATION_EVENTS + deliveries
    second = INSTANCE_VCPU * VCPU_SECOND + INSTANCE_GIB * GIB_SECOND
    return Plan(
        labours_per_hour=labours_per_hour,
        processes=processes,
        databases=databases,
        texts_per_second=peak * TEXTS,
        cloud_run=sum(processes.values()) * second * 3600 * MONTH_HOURS,
        cloud_sql=sum(_cost(one) for one in databases.values()),
        pubsub=month * messages * BYTES_PER_DELIVERY / 2**40 * PUBSUB_TIB,
        sms=month * TEXTS * SMS_US,
    )


def _database(service: str, labours_per_hour: float, processes: dict[str, int]) -> Database:
    own = [(stage, pieces) for name, (stage, pieces) in WORK.items() if name.startswith(f"{service}-")]
    cores = labours_per_hour / 3600 * PEAK * sum(stage.database_us * pieces for stage, pieces in own) / 1e6 / USED
    events = LABOUR_EVENTS if service == "labour" else NOTIFICATION_EVENTS
    gigabytes = math.ceil(10 + labours_per_hour * 24 * RETENTION_DAYS * events * KB_PER_EVENT / 1e6)
    vcpus = next((size for size in SIZES if size >= cores), SIZES[-1])
    shares = [CONNECTIONS[name] * count for name, count in processes.items() if name.startswith(f"{service}-")]
    return Database(vcpus, gigabytes, 2 * sum(shares), fits=cores <= SIZES[-1] and gigabytes <= LARGEST_DISK)


def _cost(database: Database) -> float:
    """US dollars a month, with a standby."""
    machine = database.vcpus * (SQL_VCPU_HOUR + GIB_PER_VCPU * SQL_GIB_HOUR) * MONTH_HOURS
    return 2 * (machine + database.gigabytes * SQL_GB_MONTH)

"""The stages, in the order of an event's path; then the stages that concern the whole path."""

from e2e.experiments.bench.stage import Stage
from e2e.experiments.bench.stages import (
    api,
    consumer,
    growth,
    latency,
    many,
    memory,
    old_transaction,
    overload,
    relay,
    sms,
    telemetry,
)

STAGES: tuple[Stage, ...] = (
    api.STAGE,
    overload.STAGE,
    relay.STAGE,
    consumer.STAGE,
    sms.STAGE,
    telemetry.STAGE,
    latency.STAGE,
    old_transaction.STAGE,
    growth.STAGE,
    many.STAGE,
    memory.STAGE,
)

"""The stages, in the order of an event's path."""

from e2e.experiments.bench.stage import Stage
from e2e.experiments.bench.stages import api, consumer, relay, sms

STAGES: tuple[Stage, ...] = (api.STAGE, relay.STAGE, consumer.STAGE, sms.STAGE)

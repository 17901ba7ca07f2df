"""The spans of calls to the provider, in the trace of the event that the message is about."""

from contextlib import AbstractContextManager

from messaging import telemetry
from notification.domain.notification import InDoubt, Lease


def sms_span(name: str, message: Lease | InDoubt) -> AbstractContextManager[telemetry.Spans]:
    """A span of one call about a message. A message that is sent again has a span for each attempt."""
    origin = message.origin
    if not origin.traceparent:
        return telemetry.UNTRACED

    def attributes() -> telemetry.Attributes:
        return {
            telemetry.EVENT: str(origin.event_id),
            telemetry.LABOUR: str(origin.labour_id),
            "fern.notification.id": str(message.id),
            "fern.sms.attempt": message.attempt,
        }

    return telemetry.call(name, origin.traceparent, attributes)

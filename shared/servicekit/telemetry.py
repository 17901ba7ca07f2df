"""Starts OpenTelemetry's SDK, if there is an address to send traces to. `messaging.telemetry` makes the spans.

Spans are sent in the background, in batches. An endpoint that does not answer costs the process nothing but the spans: they are
dropped, and one log line says so.

Environment, with unit and default:
OTEL_EXPORTER_OTLP_ENDPOINT   URL that takes OTLP over HTTP, without `/v1/traces` (none: no traces, and the SDK is not imported)
OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG   which requests are traced: as OpenTelemetry defines them
                              (parentbased_traceidratio with 0.1; local parentbased_always_on)
OTEL_EXPORTER_OTLP_TIMEOUT    seconds for one export, of traces or of metrics (0.8: it must end while a process stops)
OTEL_…                        all others of the SDK, such as OTEL_EXPORTER_OTLP_HEADERS and OTEL_BSP_SCHEDULE_DELAY
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

REPEAT_SECONDS = 300.0
STOP_SECONDS = 0.8


def start(process: str, variables: Mapping[str, str] = os.environ) -> Callable[[], None]:
    """Returns a function that sends what is left and ends the SDK, within `STOP_SECONDS`."""
    if not variables.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return lambda: None
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    log_rarely("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk.trace.export")
    if not variables.get("OTEL_TRACES_SAMPLER"):
        local = variables.get("FERN_MODE") == "local"
        os.environ["OTEL_TRACES_SAMPLER"] = "parentbased_always_on" if local else "parentbased_traceidratio"
        os.environ.setdefault("OTEL_TRACES_SAMPLER_ARG", "0.1")
    provider = TracerProvider(resource=resource(process), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=export_timeout("TRACES", variables))))
    trace.set_tracer_provider(provider)

    def stop() -> None:
        sending = threading.Thread(target=provider.shutdown, daemon=True)
        sending.start()
        sending.join(STOP_SECONDS)

    return stop


def export_timeout(signal: str, variables: Mapping[str, str]) -> float | None:
    """Seconds for one export; None if a variable of the SDK says it."""
    names = (f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
    return None if any(variables.get(name) for name in names) else STOP_SECONDS


def resource(process: str) -> "Resource":
    """What every span of this process has in common."""
    from opentelemetry.sdk.resources import Resource

    instance = f"{socket.gethostname()}:{os.getpid()}"
    return Resource.create(
        {"service.namespace": "fernlabour", "service.name": process, "service.instance.id": instance}
    )


def log_rarely(*loggers: str) -> None:
    """One line in `REPEAT_SECONDS` instead of one for each batch that cannot be sent."""
    for name in loggers:
        logging.getLogger(name).addFilter(_Rarely())


class _Rarely(logging.Filter):
    _last = -REPEAT_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        if time.monotonic() - self._last < REPEAT_SECONDS:
            return False
        self._last = time.monotonic()
        return True

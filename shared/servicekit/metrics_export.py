"""Starts OpenTelemetry's metrics SDK, if there is anything that reads metrics. `messaging.metrics` has the instruments.

Prometheus reads them from `/metrics` (`servicekit.monitor`, and the operators' listener of an API). With
OTEL_EXPORTER_OTLP_ENDPOINT a thread sends them as well. An endpoint that does not answer costs the process nothing: counts and
histograms are cumulative, so the next export has what was not sent.

Environment, with unit and default:
OTEL_EXPORTER_OTLP_ENDPOINT   URL that takes OTLP over HTTP, without `/v1/metrics` (none: nothing is sent)
OTEL_METRICS_EXPORTER         `none`: only traces are sent there, because Prometheus reads `/metrics`. With both, each measurement
                              is stored twice
OTEL_METRIC_EXPORT_INTERVAL   milliseconds between two exports to OTEL_EXPORTER_OTLP_ENDPOINT (10000)
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from messaging import metrics
from servicekit.telemetry import STOP_SECONDS, export_timeout, log_rarely, resource

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LAG_INTERVAL = 0.5  # seconds


def start(process: str, variables: Mapping[str, str] = os.environ, *, monitored: bool = False) -> Callable[[], None]:
    """`monitored` processes have a `/metrics`. Returns a function that sends what is left, within `STOP_SECONDS`."""
    exported = bool(variables.get("OTEL_EXPORTER_OTLP_ENDPOINT")) and variables.get("OTEL_METRICS_EXPORTER") != "none"
    if not (monitored or exported) or metrics.enabled:
        return lambda: None
    from opentelemetry.metrics import set_meter_provider
    from opentelemetry.sdk.metrics import MeterProvider

    readers = [*([_prometheus()] if monitored else []), *([_otlp(variables)] if exported else [])]
    provider = MeterProvider(readers, resource(process), shutdown_on_exit=False)
    set_meter_provider(provider)
    metrics.enable(process)

    def stop() -> None:
        sending = threading.Thread(target=provider.shutdown, daemon=True)
        sending.start()
        sending.join(STOP_SECONDS)

    return stop if exported else lambda: None


def _prometheus() -> "MetricReader":
    from opentelemetry.exporter.prometheus import PrometheusMetricReader

    return PrometheusMetricReader(scope_info_enabled=False)


def _otlp(variables: Mapping[str, str]) -> "MetricReader":
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    log_rarely("opentelemetry.exporter.otlp.proto.http.metric_exporter", "opentelemetry.sdk.metrics._internal.export")
    interval = float(variables.get("OTEL_METRIC_EXPORT_INTERVAL") or 10_000)
    exporter = OTLPMetricExporter(timeout=export_timeout("METRICS", variables))
    return PeriodicExportingMetricReader(exporter, export_interval_millis=interval)


def text() -> bytes:
    """All metrics of this process in Prometheus' text format. Takes milliseconds: call it in a thread."""
    from prometheus_client import REGISTRY
    from prometheus_client.exposition import generate_latest

    return generate_latest(REGISTRY)


async def watch_event_loop() -> None:
    """Measure how late the event loop runs a timer, until cancelled. Other work of the loop delays it as much."""
    loop = asyncio.get_running_loop()
    while metrics.enabled:
        due = loop.time() + LAG_INTERVAL
        await asyncio.sleep(LAG_INTERVAL)
        metrics.loop_lagged(max(0.0, loop.time() - due))

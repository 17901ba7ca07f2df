"""Requests are counted by who sends them, so that neither probes nor the bus burn the objective of the API."""

from typing import Any

import pytest

from e2e.support import metrics
from e2e.support.metrics import value
from servicekit.http.request_metrics import measured


@pytest.mark.parametrize(
    ("path", "status", "caller", "outcome"),
    [
        ("/api/v1/labours", 201, "client", "answered"),
        ("/api/v1/labours", 404, "client", "answered"),
        ("/api/v1/labours", 401, "client", "denied"),
        ("/api/v1/labours", 503, "client", "unavailable"),
        ("/api/v1/labours", 500, "client", "failed"),
        ("/webhooks/twilio/status", 403, "provider", "denied"),
        ("/pubsub/push", 503, "bus", "unavailable"),
        ("/health/ready", 503, None, "unavailable"),
        ("/metrics", 401, None, "denied"),
    ],
)
async def test_a_request_is_counted_by_its_caller_and_outcome(
    path: str, status: int, caller: str | None, outcome: str
) -> None:
    metrics.record()

    def counts() -> dict[tuple[str, str], float]:
        return {
            (one, other): value("fern_http_requests_total", caller=one, outcome=other)
            for one in ("client", "provider", "bus")
            for other in ("answered", "denied", "unavailable", "failed")
        }

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def ignore(*_: Any) -> Any: ...

    before = counts()
    scope: Any = {"type": "http", "path": path, "method": "GET"}
    await measured(app)(scope, ignore, ignore)

    grown = {key: count - before[key] for key, count in counts().items() if count != before[key]}
    assert grown == ({(caller, outcome): 1.0} if caller else {})

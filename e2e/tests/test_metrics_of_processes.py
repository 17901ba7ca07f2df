"""A completed labour is in the metrics of every process that it passed, and nothing personal is."""

import re
import tomllib

import pytest
from prometheus_client.samples import Sample

from e2e.experiments.alerts.promql import Samples
from e2e.experiments.alerts.watch import names_in, selectors_in
from e2e.support.metrics import monitor, parse, total
from e2e.support.waiting import until
from e2e.support.world import BEGUN, COMPLETE, World
from fern import observability

WORKERS = (
    "labour-relay",
    "labour-consumer",
    "labour-statistics",
    "notification-relay",
    "notification-consumer",
    "notification-dispatcher",
)
BOUNDED = {
    "caller": {"client", "provider", "bus"},
    "consumer": {"labour", "statistics", "notification"},
    "service": {"labour", "notification"},
    "outcome": {
        *("handled", "repeat", "contended", "early", "failed", "dead"),
        *("published", "rejected", "parked", "unanswered", "put_off"),
        *("accepted", "refused", "not_sent", "misconfigured", "unknown"),
        *("answered", "denied", "unavailable"),
    },
    "state": {
        *(
            "AWAITING_CONSENT",
            "PENDING",
            "SENDING",
            "IN_DOUBT",
            "SENT",
            "DELIVERED",
            "FAILED",
            "UNDELIVERED",
            "SUPERSEDED",
        ),
        *("used", "idle"),
    },
    "messaging_operation_name": {"publish", "ack", "modify_deadline"},
    "messaging_system": {"gcp_pubsub"},
    "http_request_method": {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "_OTHER"},
}
# Names of topics, subscriptions, routes, reasons, pools and errors, status codes, buckets, and those of the client library.
NAMES = re.compile(r"[A-Za-z0-9_.:+/{}-]*")


def text(world: World, process: str) -> str:
    if process in WORKERS:
        return monitor(world.settings.heartbeat(process), "/metrics").raise_for_status().text
    operators = world.operators[process.removesuffix("-api")]
    return operators.get("/metrics").raise_for_status().text


def metrics_of(world: World, process: str) -> list[Sample]:
    return parse(text(world, process))


def test_a_completed_labour_is_counted_from_the_request_to_the_phone(world: World) -> None:
    begun = {process: metrics_of(world, process) for process in (*WORKERS, "labour-api", "notification-api")}

    def grown(process: str, name: str, **labels: str) -> float:
        return total(metrics_of(world, process), name, **labels) - total(begun[process], name, **labels)

    labour = world.plan("Grace", "Alan")
    world.begin(labour)
    world.until_everyone_is_told(labour, BEGUN)
    world.complete(labour)
    world.until_everyone_is_told(labour, BEGUN, COMPLETE)

    route = {"http_route": "/api/v1/labours/{labour_id}/complete", "http_request_method": "PUT"}
    answered = {**route, "http_response_status_code": "200"}
    assert grown("labour-api", "http_server_request_duration_seconds_count", **answered) == 1
    assert grown("labour-relay", "fern_relay_events_total", service="labour", outcome="published") == 5
    assert grown("labour-relay", "messaging_client_sent_messages_total") == 5
    until(
        lambda: grown("notification-consumer", "fern_consumer_events_total", outcome="handled"), lambda seen: seen >= 4
    )
    assert grown("notification-dispatcher", "fern_sms_attempts_total", outcome="accepted") == 4
    told = grown("notification-dispatcher", "fern_tap_to_sms_seconds_count", event_type="labour.completed")
    assert told + grown("notification-api", "fern_tap_to_sms_seconds_count", event_type="labour.completed") == 2
    until(lambda: grown("notification-api", "fern_sms_transitions_total", state="DELIVERED"), lambda seen: seen == 4)
    until(lambda: grown("labour-consumer", "fern_consumer_events_total", outcome="handled"), lambda seen: seen == 8)
    until(lambda: grown("labour-statistics", "messaging_client_consumed_messages_total"), bool)
    assert total(metrics_of(world, "notification-relay"), "fern_outbox_parked", service="notification") == 0
    assert all(grown(process, "fern_event_loop_lag_seconds_count") > 0 for process in begun)
    assert all(total(metrics_of(world, process), "db_client_connection_count") > 0 for process in begun)


def test_a_live_stream_is_measured_when_it_begins(world: World) -> None:
    labour = world.plan()
    answered = {"http_route": "/api/v1/labours/{labour_id}/events", "http_response_status_code": "200"}

    def streams() -> float:
        return total(metrics_of(world, "labour-api"), "http_server_request_duration_seconds_count", **answered)

    before = streams()
    with world.labour_api.stream("GET", f"/api/v1/labours/{labour.id}/events", headers=labour.mother) as stream:
        next(stream.iter_lines())
        while_open = streams()

    assert while_open == before + 1
    assert streams() == while_open, "and its end is not measured again"


def test_every_metric_of_an_alert_and_of_the_dashboard_is_exported(world: World) -> None:
    labour = world.plan("Grace")
    world.complete(labour)
    world.until_everyone_is_told(labour, COMPLETE)
    watched, shown = (tomllib.loads(path.read_text()) for path in (observability.ALERTS, observability.DASHBOARD))
    named = set().union(*map(names_in, observability.queries(watched, shown).values()))

    everything = [metrics_of(world, process) for process in (*WORKERS, "labour-api", "notification-api")]
    exported = {sample.name for samples in everything for sample in samples}

    # It has no series before the first dead letter. What the alert reads begins at 0.
    assert named - exported <= {"fern_dead_letters_total"}


def test_what_an_alert_counts_begins_at_0(world: World) -> None:
    counters = [
        selector
        for alert in observability.alerts()
        for selector in selectors_in(alert.query)
        if selector.name and selector.name.endswith("_total")
    ]
    found = Samples({str(one.name) for one in counters})

    everything = [metrics_of(world, process) for process in (*WORKERS, "labour-api", "notification-api")]
    found.scraped(0.0, ((one.name, one.labels, one.value) for samples in everything for one in samples))

    assert len(counters) > 10
    assert [one.prettify() for one in counters if not found.instant(one, 0.0)] == []


@pytest.mark.parametrize("process", [*WORKERS, "labour-api", "notification-api"])
def test_no_label_has_a_value_that_grows_with_the_labours_or_says_anything_about_a_person(
    world: World, process: str
) -> None:
    labour = world.plan("Grace", "Alan")
    world.complete(labour)
    world.until_everyone_is_told(labour, COMPLETE)

    exposed = text(world, process)

    assert not any(private in exposed for private in ("Grace", "Alan", "Ada", *labour.people.values(), str(labour.id)))
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", exposed)
    for sample in parse(exposed):
        for name, label in sample.labels.items():
            if sample.name.startswith(("fern_", "messaging_", "http_", "db_")):
                assert label in BOUNDED[name] if name in BOUNDED else NAMES.fullmatch(label), (sample.name, name, label)


def test_the_metrics_of_an_api_need_an_operators_token(world: World) -> None:
    url = world.settings.url("labour-operators") + "/metrics"

    assert world.labour_api.get(url).status_code == 401
    assert world.labour_api.get("/metrics").status_code == 404

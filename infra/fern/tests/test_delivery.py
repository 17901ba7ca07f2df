"""How subscriptions are delivered: what topology.toml may say, and a bus that follows each change without losing a message."""

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner
from google.pubsub_v1 import SubscriberClient

from e2e.support.bus import pull_all
from fern.cli import main
from fern.delivery import Delivery, deliveries
from fern.errors import TopologyInvalid
from fern.overrides import Overrides
from fern.settings import Settings
from fern.topology import Declared, apply
from messaging.bus import Outgoing
from messaging.pubsub import PubSub

TOPICS = {"labour.begun": ["notification"], "labour.completed": ["notification"], "notification.sent": ["labour"]}
BEGUN, COMPLETED, SENT = "notification.labour.begun", "notification.labour.completed", "labour.notification.sent"


def content(**tables: Any) -> dict[str, Any]:
    return {"subscription": Declared.load().options, "topics": TOPICS, **tables}


def test_a_subscription_is_pulled_unless_something_else_is_declared() -> None:
    assert deliveries(content(), {}) == dict.fromkeys((BEGUN, COMPLETED, SENT), Delivery.PULL)
    assert set(Declared.load().delivery.values()) == {Delivery.PULL}


def test_the_delivery_of_a_subscription_comes_before_that_of_its_consumer_and_an_override_before_both() -> None:
    declared = content(
        consumers={"notification": {"delivery": "push"}},
        subscriptions={COMPLETED: {"delivery": "pull", "exactly_once": True}},
    )

    as_declared = deliveries(declared, {})
    overridden = deliveries(declared, {"notification": "pull"})

    assert as_declared == {BEGUN: Delivery.PUSH, COMPLETED: Delivery.EXACTLY_ONCE, SENT: Delivery.PULL}
    assert set(overridden.values()) == {Delivery.PULL}


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"consumers": {"notification": {"delivery": "pigeon"}}}, "'pigeon'; it must be pull or push"),
        (
            {"consumers": {"notifications": {"delivery": "push"}}},
            "no consumer notifications .* there are labour, notif",
        ),
        ({"subscriptions": {"notification.labour.paused": {}}}, "no subscription notification.labour.paused"),
        ({"subscriptions": {BEGUN: {"exactly_once": "yes"}}}, "'yes'; it must be true or false"),
        ({"subscriptions": {BEGUN: {"retries": 3}}}, "the unknown option retries; there are delivery and exactly_once"),
        ({"subscriptions": {BEGUN: {"delivery": "push", "exactly_once": True}}}, "exactly-once delivery for pull only"),
        ({"consumers": {"labour": {"delivery": "push"}}}, "labour has no push endpoint"),
    ],
)
def test_a_declaration_that_cannot_be_applied_is_refused_with_the_reason(tables: dict[str, Any], why: str) -> None:
    with pytest.raises(TopologyInvalid, match=why) as refused:
        deliveries(content(**tables), {})

    assert refused.value.exit_code == 29


async def test_every_switch_of_the_delivery_is_applied_and_no_message_is_lost(
    any_bus_host: str, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"URL": "http://127.0.0.1:9/closed", "AUDIENCE": "fern", "SERVICE_ACCOUNT": "push@fern-local.iam"}
    for name, value in variables.items():
        monkeypatch.setenv(f"PUSH_{name}", value)
    bus, switches = PubSub(project), ["pull", "push", "exactly-once", "push", "pull"]
    states = []

    for number, delivery in enumerate(switches):
        declared = Declared.of(content(), {"notification": delivery})
        await asyncio.to_thread(apply, declared, project)
        again = await asyncio.to_thread(apply, declared, project)
        assert (again.created, again.updated) == (0, 0)
        await bus.publish("labour.begun", [Outgoing(str(number).encode(), {})])
        states.append(await asyncio.to_thread(_state, bus.subscription_path(BEGUN)))

    pulled, pushed = ("", "", False), (variables["URL"], variables["SERVICE_ACCOUNT"], False)
    assert states == [pulled, pushed, ("", "", True), pushed, pulled]
    found = {message.data.decode() for message in await pull_all(bus, BEGUN)}
    assert found == {str(number) for number in range(len(switches))}
    await bus.close()


def _state(name: str) -> tuple[str, str, bool]:
    with SubscriberClient() as subscriber:
        found = subscriber.get_subscription(subscription=name)
    push = found.push_config
    return push.push_endpoint, push.oidc_token.service_account_email, found.enable_exactly_once_delivery


def test_push_without_an_address_is_refused_before_anything_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUSH_URL", raising=False)

    with pytest.raises(TopologyInvalid, match="Set PUSH_URL, PUSH_AUDIENCE and PUSH_SERVICE_ACCOUNT"):
        apply(Declared.of(content(), {"notification": "push"}), "nowhere")


@pytest.fixture
def home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("FERN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FERN_PORT_BASE", "9750")
    return Settings.load()


def test_a_switch_is_kept_for_the_next_start_shown_and_undone(home: Settings) -> None:
    fern = CliRunner()

    switched = fern.invoke(main, ["topology", "set", "notification", "exactly-once"])
    shown = fern.invoke(main, ["topology", "show"]).output
    undone = fern.invoke(main, ["topology", "set", "notification", "declared"])

    assert switched.output == "notification: exactly-once, from the next `fern up` on\n"
    assert "→ notification.labour.begun (exactly-once)" in shown
    assert "→ labour.notification.sent (pull)" in shown
    assert "notification is set to exactly-once on this machine" in shown
    assert (undone.exit_code, Overrides.load(home)) == (0, Overrides())


def test_a_container_gets_the_switch_from_its_environment(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERN_DELIVERY", "notification=exactly-once,labour=pull")

    assert Overrides.load(home).delivery == {"notification": "exactly-once", "labour": "pull"}


@pytest.mark.parametrize(
    ("consumer", "why"), [("nonsense", "there is no consumer nonsense"), ("labour", "no push endpoint")]
)
def test_a_switch_that_cannot_be_made_changes_nothing(home: Settings, consumer: str, why: str) -> None:
    refused = CliRunner().invoke(main, ["topology", "set", consumer, "push"])

    assert (refused.exit_code, Overrides.load(home)) == (29, Overrides())
    assert why in refused.output

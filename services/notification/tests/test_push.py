"""The push endpoint accepts messages of our own push subscriptions, with a token that Pub/Sub got for their service account."""

import base64
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from litestar.testing import AsyncTestClient
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from contracts.events import SubscriberAdded
from e2e.support.key_server import KeyServer, key_server
from messaging.envelope import attributes
from messaging.errors import SettingsError
from notification.app import build
from notification.settings import GOOGLE, ApiSettings

from .sms_parts import Api, local_settings

pytestmark = pytest.mark.system

AUDIENCE, ACCOUNT = "https://fern.example/pubsub/push", "push@fern.iam.gserviceaccount.com"
PATH = "/pubsub/push"
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
EVENT = SubscriberAdded(labour_id=uuid7(), roster_version=1, person_id=uuid7(), name="Grace", phone="+12025550123")
SUBSCRIPTION = f"projects/fern-local/subscriptions/notification.{EVENT.type}"


@pytest.fixture
def provider() -> Iterator[KeyServer]:
    with key_server() as provider:
        yield provider


@pytest.fixture
async def push_api(notification_url: str, bus_host: str, provider: KeyServer) -> AsyncIterator[Api]:
    settings = local_settings(
        notification_url, PUSH_AUDIENCE=AUDIENCE, PUSH_SERVICE_ACCOUNT=ACCOUNT, PUSH_JWKS_URL=provider.url
    )
    assert settings.push_issuers == GOOGLE
    async with AsyncTestClient(build(settings).public, base_url="http://127.0.0.1") as api:
        yield api


def a_message(subscription: str = SUBSCRIPTION) -> dict[str, Any]:
    context = attributes(
        id=uuid7(),
        source="labour",
        type=EVENT.type,
        version=1,
        subject=str(EVENT.labour_id),
        time=NOW,
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    )
    data = base64.b64encode(msgspec.json.encode(EVENT)).decode()
    return {"message": {"messageId": "1", "data": data, "attributes": context}, "subscription": subscription}


def signed(provider: KeyServer, **claims: Any) -> dict[str, str]:
    """The headers of a push with a token as Google signs it, except for the claims that are given."""
    google = {"iss": GOOGLE[0], "aud": AUDIENCE, "email": ACCOUNT, "email_verified": True}
    return {"Authorization": f"Bearer {provider.token(**{**google, **claims})}"}


async def events(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        count: int = (await connection.execute(text("SELECT count(*) FROM processed_event"))).scalar_one()
        return count


@pytest.mark.parametrize("issuer", GOOGLE)
async def test_a_message_of_our_own_subscription_is_handled(
    push_api: Api, provider: KeyServer, notification_engine: AsyncEngine, issuer: str
) -> None:
    answer = await push_api.post(PATH, json=a_message(), headers=signed(provider, iss=issuer))

    assert answer.status_code == 204, answer.text
    assert await events(notification_engine) == 1


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"exp": None}, 401),
        ({"exp": datetime.now(UTC) - timedelta(minutes=1)}, 401),
        ({"iss": None}, 401),
        ({"iss": "https://accounts.google.com.evil.example"}, 401),
        ({"aud": "https://elsewhere.example"}, 401),
        ({"email": None}, 401),
        ({"email": "anyone@another-project.iam.gserviceaccount.com"}, 403),
        ({"email_verified": None}, 403),
        ({"email_verified": "true"}, 403),
    ],
    ids=["endless", "expired", "no issuer", "issuer", "audience", "no account", "account", "not verified", "text"],
)
async def test_a_token_of_any_other_google_account_or_issuer_is_refused_and_has_no_effect(
    push_api: Api, provider: KeyServer, notification_engine: AsyncEngine, claims: dict[str, Any], status: int
) -> None:
    answer = await push_api.post(PATH, json=a_message(), headers=signed(provider, **claims))

    assert answer.status_code == status, answer.text
    assert await events(notification_engine) == 0


@pytest.mark.parametrize(
    "subscription",
    [
        f"projects/another/subscriptions/notification.{EVENT.type}",
        f"projects/fern-local/subscriptions/labour.{EVENT.type}",
        f"projects/fern-local/subscriptions/{EVENT.type}.dlq",
        "projects/fern-local/subscriptions/notification.labour.planned",
        f"notification.{EVENT.type}",
        "",
    ],
)
async def test_a_message_of_a_subscription_that_is_not_ours_is_refused_and_has_no_effect(
    push_api: Api, provider: KeyServer, notification_engine: AsyncEngine, subscription: str
) -> None:
    answer = await push_api.post(PATH, json=a_message(subscription), headers=signed(provider))

    assert answer.status_code == 403, answer.text
    assert await events(notification_engine) == 0


async def test_without_a_valid_token_the_body_is_not_even_read(push_api: Api) -> None:
    answer = await push_api.post(PATH, content=b"{", headers={"Authorization": "Bearer x.y.z"})

    assert answer.status_code == 401


async def test_without_an_audience_push_is_disabled(notification_url: str, bus_host: str) -> None:
    async with AsyncTestClient(build(local_settings(notification_url)).public, base_url="http://127.0.0.1") as api:
        assert (await api.post(PATH, json=a_message())).status_code == 404


def test_push_without_its_service_account_does_not_start() -> None:
    with pytest.raises(SettingsError, match=r"export PUSH_SERVICE_ACCOUNT=…"):
        ApiSettings.load({"FERN_MODE": "local", "NOTIFICATION_DATABASE_URL": "x", "PUSH_AUDIENCE": AUDIENCE})


OPEN = {"/health/live", "/health/ready"}


async def test_every_route_but_health_refuses_a_caller_without_a_token_or_a_signature(push_api: Api) -> None:
    schema = (await push_api.get("/schema/openapi.json")).json()
    walked = set[str]()
    for path, item in schema["paths"].items():
        for method in item:
            filled = re.sub(r"\{[^}]+\}", str(uuid7()), path)
            answer = await push_api.request(method, filled, json={} if method != "get" else None)
            assert answer.is_success if path in OPEN else answer.status_code in (400, 401, 403), f"{method} {path}"
            walked.add(path)

    assert walked == {PATH, "/webhooks/twilio/status", "/webhooks/twilio/inbound", *OPEN}

"""Webhooks change something only if they are signed. Statuses, STOP and START reach the ledger from the sandbox."""

import os
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from uuid import UUID

import httpx
import pytest
from twilio.request_validator import RequestValidator

from e2e.support.http_server import served
from e2e.support.waiting import eventually
from messaging.errors import SettingsError
from notification.app import build
from notification.delivery import callbacks
from notification.settings import ApiSettings

from .sms_parts import ACCOUNT, PHONE, PUBLIC_URL, SID, TOKEN, Api, PostOffice, local_settings


def status_form(status: str, sid: str = SID, **more: str) -> dict[str, str]:
    return {"AccountSid": ACCOUNT, "MessageSid": sid, "MessageStatus": status, "To": PHONE, "NewIn2031": "?", **more}


async def post_signed(api: httpx.AsyncClient, path: str, form: dict[str, str], *, token: str = TOKEN) -> int:
    signature = RequestValidator(token).compute_signature(PUBLIC_URL + path, form)
    return (await api.post(path, data=form, headers={"X-Twilio-Signature": signature})).status_code


# Signatures


async def test_a_signed_status_is_applied(office: PostOffice, api: Api) -> None:
    notification_id = await office.post_sending()
    path = f"/webhooks/twilio/status?nid={notification_id}&attempt=1"

    assert await post_signed(api, path, status_form("sent")) == 204

    row = await office.row(notification_id)
    assert (row["state"], row["sid"]) == ("SENT", SID)


async def test_a_status_without_its_own_signature_changes_nothing(office: PostOffice, api: Api) -> None:
    notification_id = await office.post_sending()
    path, form = f"/webhooks/twilio/status?nid={notification_id}&attempt=1", status_form("delivered")

    def signed(url: str, form: dict[str, str], token: str = TOKEN) -> dict[str, str]:
        return {"X-Twilio-Signature": RequestValidator(token).compute_signature(url, form)}

    forged = {
        "none": {},
        "with a guessed token": signed(PUBLIC_URL + path, form, token="guessed"),
        "for another host": signed("https://elsewhere.example" + path, form),
        "for another scheme": signed("http://fern.example" + path, form),
        "for another message": signed(f"{PUBLIC_URL}/webhooks/twilio/status?nid={UUID(int=7)}&attempt=1", form),
        "for another attempt": signed(PUBLIC_URL + path.replace("attempt=1", "attempt=2"), form),
        "for another status": signed(PUBLIC_URL + path, form | {"MessageStatus": "sent"}),
    }
    for signature, headers in forged.items():
        assert (await api.post(path, data=form, headers=headers)).status_code == 403, signature

    assert await office.state(notification_id) == "SENDING"
    assert await office.events(notification_id) == []


async def test_a_reply_without_its_signature_opts_no_person_out(office: PostOffice, api: Api) -> None:
    form = {"From": PHONE, "Body": "STOP"}

    assert (await api.post("/webhooks/twilio/inbound", data=form)).status_code == 403
    assert await post_signed(api, "/webhooks/twilio/inbound", form, token="") == 403

    assert await office.suppressed() == set()


async def test_the_problem_says_what_to_check_and_nothing_about_the_person(api: Api) -> None:
    answer = await api.post("/webhooks/twilio/inbound", data={"From": PHONE, "Body": "STOP"})

    assert answer.headers["content-type"].startswith("application/problem+json")
    assert "PUBLIC_URL" in answer.json()["detail"]
    assert PHONE not in answer.text


async def test_a_status_of_an_unknown_notification_is_accepted_and_ignored(api: Api) -> None:
    path = f"/webhooks/twilio/status?nid={UUID(int=7)}&attempt=1"

    assert await post_signed(api, path, status_form("delivered")) == 204


# STOP and START


async def test_a_person_who_says_stop_gets_nothing_more_until_start(office: PostOffice, api: Api) -> None:
    for word in [*sorted(callbacks.STOP_WORDS), " stop\n"]:
        assert await post_signed(api, "/webhooks/twilio/inbound", {"From": PHONE, "Body": word}) == 200
        stopped = await office.post_one()
        await office.dispatcher().run_once()

        assert await post_signed(api, "/webhooks/twilio/inbound", {"From": PHONE, "Body": "Start"}) == 200
        started = await office.post_one()
        await office.dispatcher().run_once()

        assert (await office.state(stopped.id), office.texts(stopped)) == ("FAILED", []), word
        assert (await office.state(started.id), len(office.texts(started))) == ("SENT", 1), word


async def test_a_stop_counts_however_it_is_written(office: PostOffice, api: Api) -> None:
    bodies = ["stop.", "Opt out", "STOP ALL", "ＳＴＯＰ", "\u200bStop\n", "STOP \U0001f64f"]  # noqa: RUF001
    phones = [f"+1202555010{number}" for number in range(len(bodies))]
    for phone, body in zip(phones, bodies, strict=True):
        assert await post_signed(api, "/webhooks/twilio/inbound", {"From": phone, "Body": body}) == 200

    assert await office.suppressed() == set(phones)


async def test_a_reply_that_is_not_from_a_phone_number_is_stored_nowhere(office: PostOffice, api: Api) -> None:
    for sender in ("", "x" * 100, "12345", "whatsapp:+12025550123", "+1202555012\u0663", "+" + "1" * 90_000):
        assert await post_signed(api, "/webhooks/twilio/inbound", {"From": sender, "Body": "STOP"}) == 200

    assert await office.suppressed() == set()


async def test_any_other_reply_changes_nothing(office: PostOffice, api: Api) -> None:
    for body in ("Congratulations!", "", "please do not stop", "stop it", "yes but not today"):
        assert await post_signed(api, "/webhooks/twilio/inbound", {"From": PHONE, "Body": body}) == 200

    assert await office.suppressed() == set()


@pytest.mark.parametrize(
    ("host", "public", "operators"),
    [
        ("elsewhere.example", 403, 403),
        ("fern.example", 200, 403),
        ("notification-api:8402", 200, 200),
        ("localhost:8402", 200, 200),
    ],
)
async def test_in_local_mode_the_api_answers_to_this_machine_and_to_its_public_name_only(
    api: Api, operator: httpx.AsyncClient, host: str, public: int, operators: int
) -> None:
    answers = [
        await api.get("/health/live", headers={"Host": host}),
        await operator.get("/operations/notifications/counts", headers={"Host": host}),
    ]

    assert [answer.status_code for answer in answers] == [public, operators]


# From the sandbox over HTTP to the ledger


def serving_api(notification_url: str) -> AbstractAsyncContextManager[str]:
    """The provider signs the URL that it calls, so the API must know its own."""
    return served(lambda url: build(local_settings(notification_url, PUBLIC_URL=url)).public)


@pytest.mark.parametrize("fault", [None, "callbacks-doubled", "callbacks-reordered", "undelivered"])
async def test_the_sandboxs_callbacks_bring_a_message_to_its_final_state(
    office: PostOffice, notification_url: str, bus_host: str, fault: str | None
) -> None:
    if fault is not None:
        office.fault(fault)
    async with serving_api(notification_url) as url:
        one = await office.post_one()
        await office.dispatcher(callback_url=f"{url}/webhooks/twilio/status").run_once()

        end = await eventually(lambda: office.state(one.id), lambda state: state in ("DELIVERED", "UNDELIVERED"))

        assert end == ("UNDELIVERED" if fault == "undelivered" else "DELIVERED")
        event = "notification.failed" if fault == "undelivered" else "notification.delivered"
        assert await office.events(one.id) == ["notification.sent", event]


async def test_a_callback_resolves_a_message_in_doubt_before_the_reconciler_asks(
    office: PostOffice, notification_url: str, bus_host: str
) -> None:
    office.fault("reply-lost")
    async with serving_api(notification_url) as url:
        one = await office.post_one()
        await office.dispatcher(callback_url=f"{url}/webhooks/twilio/status").run_once()

        await eventually(lambda: office.state(one.id), lambda state: state == "DELIVERED")

        assert office.texts(one) == [(await office.row(one.id))["sid"]]


# No process runs without a secret


@pytest.mark.system
@pytest.mark.parametrize("role", ["api", "dispatcher"])
def test_no_process_starts_with_an_empty_auth_token_outside_local_mode(role: str) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "NOTIFICATION_DATABASE_URL": "postgresql+asyncpg://n:n@127.0.0.1:9/n",
        "PUBSUB_PROJECT_ID": "fern",
        "OPERATOR_READ_TOKENS": f"grace:{'r' * 32}",
        "OPERATOR_WRITE_TOKENS": f"grace:{'w' * 32}",
        "PUBLIC_URL": "https://fern.example",
        "TWILIO_ACCOUNT_SID": ACCOUNT,
        "TWILIO_AUTH_TOKEN": "",
        "TWILIO_FROM": "+12025550100",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "notification", role], env=environment, capture_output=True, text=True, timeout=240
    )

    assert ended.returncode == 78
    assert "TWILIO_AUTH_TOKEN is not set" in ended.stderr


@pytest.mark.parametrize("token", ["", "   ", "local-twilio-token"])
def test_neither_an_empty_token_nor_the_development_one_is_accepted(token: str) -> None:
    with pytest.raises(SettingsError, match="TWILIO_AUTH_TOKEN"):
        ApiSettings.load({"TWILIO_AUTH_TOKEN": token})

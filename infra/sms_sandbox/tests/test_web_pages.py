"""What a web page that a developer visits can do to the sandbox: nothing. And no request makes it call another machine."""

from pathlib import Path

import pytest
from httpx import AsyncClient

from sms_sandbox import Address, running
from sms_sandbox.server import create_app

from .parts import MESSAGES, PHONE, SENDER, Client, TwilioRestException, twilio_client

FOREIGN = {"Origin": "http://elsewhere.example"}
REBOUND = {"Host": "elsewhere.example", "Origin": "http://elsewhere.example", "Sec-Fetch-Site": "same-origin"}
PARTS = {"{name:str}": "reply-lost", "{account_sid:str}": "AC" + "0" * 32}


def routes(sms: Address) -> list[tuple[str, str]]:
    found = []
    for route in create_app(sms.sandbox).routes:
        path = route.path_format
        for name in ("name", "account_sid"):
            path = path.replace(f"{{{name}}}", PARTS[f"{{{name}:str}}"])
        found += [(method, path) for method in getattr(route, "methods", ())]
    assert len(found) > 15
    return found


async def test_no_route_answers_to_a_foreign_name_and_none_changes_anything_for_a_foreign_page(
    sms: Address, api: AsyncClient
) -> None:
    for method, path in routes(sms):
        assert (await api.request(method, path, headers=REBOUND)).status_code == 403, f"{method} {path}"
        if method not in ("GET", "HEAD", "OPTIONS"):
            answer = await api.request(method, path, headers=FOREIGN)
            assert answer.status_code == 403, f"{method} {path}"
            assert answer.json()["type"] == "urn:fernlabour:problem:foreign-page"


async def test_a_foreign_page_cannot_say_stop_for_a_phone_and_curl_can(api: AsyncClient) -> None:
    stop = f'{{"from": "{PHONE}", "body": "STOP"}}'
    as_text = {"Content-Type": "text/plain"}  # which a page may send without asking first

    assert (await api.post("/sandbox/inbound", content=stop, headers=FOREIGN | as_text)).status_code == 403
    assert (await api.get("/sandbox/opt-outs")).json()["items"] == []

    assert (await api.post("/sandbox/inbound", content=stop)).status_code == 201
    assert (await api.get("/sandbox/opt-outs")).json()["items"] == [PHONE]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/sandbox/inbound"), ("PUT", "/faults/reply-lost"), ("POST", MESSAGES)]
)
async def test_a_body_that_is_too_large_is_refused(twilio: Client, api: AsyncClient, method: str, path: str) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await api.request(
        method, path, content=b"x" * 100_000, headers=form, auth=(twilio.username, twilio.password)
    )

    assert answer.status_code == 413


@pytest.mark.parametrize("host", ["elsewhere.example", "169.254.169.254", "0.0.0.0", "2130706433", "10.0.0.1"])
async def test_a_callback_goes_to_this_machine_only(twilio: Client, host: str) -> None:
    with pytest.raises(TwilioRestException) as refused:
        await twilio.messages.create_async(
            to=PHONE, from_=SENDER, body="Hello", status_callback=f"http://{host}/webhooks"
        )

    assert refused.value.code == 21609


@pytest.mark.system
async def test_names_that_are_allowed_are_answered_and_called(tmp_path: Path) -> None:
    async with (
        running(tmp_path, allow_hosts=("sms-sandbox", "notification-api")) as sms,
        twilio_client(sms.url) as twilio,
        AsyncClient(base_url=sms.url, trust_env=False) as api,
    ):
        for host in ("notification-api:8402", "localhost:9", "127.0.0.1:9", "[::1]:9"):
            await twilio.messages.create_async(
                to=PHONE, from_=SENDER, body="Hello", status_callback=f"http://{host}/webhooks"
            )

        assert (await api.get("/health", headers={"Host": "sms-sandbox:8403"})).status_code == 200

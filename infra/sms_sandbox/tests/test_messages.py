import asyncio
import base64
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from sms_sandbox import Address, running
from sms_sandbox.message import count_segments

from .parts import ACCOUNT, MESSAGES, PHONE, SENDER, TOKEN, Client, TwilioRestException, eventually, twilio_client


async def test_the_unmodified_sync_client_creates_fetches_and_lists(sms: Address) -> None:
    client = Client(ACCOUNT, TOKEN)
    client.api.base_url = sms.url

    created = await asyncio.to_thread(client.messages.create, to=PHONE, from_=SENDER, body="It has begun")

    fetched = await asyncio.to_thread(client.messages(created.sid).fetch)
    listed = await asyncio.to_thread(client.messages.list, to=PHONE)
    assert created.status == "queued"
    assert (fetched.sid, fetched.body, fetched.to, fetched.from_) == (created.sid, "It has begun", PHONE, SENDER)
    assert [message.sid for message in listed] == [created.sid]


async def test_a_created_message_has_the_shape_of_twilios(api: httpx.AsyncClient) -> None:
    form = {"To": PHONE, "From": SENDER, "Body": "Hello"}

    response = await api.post(MESSAGES, data=form, auth=(ACCOUNT, TOKEN))

    message = response.json()
    dates = {key: message.pop(key) for key in ("date_created", "date_updated")}
    sid = message.pop("sid")
    assert response.status_code == 201
    assert re.fullmatch(r"SM[0-9a-f]{32}", sid)
    assert all(re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", date) for date in dates.values())
    assert message == {
        "account_sid": ACCOUNT,
        "api_version": "2010-04-01",
        "body": "Hello",
        "date_sent": None,
        "direction": "outbound-api",
        "error_code": None,
        "error_message": None,
        "from": SENDER,
        "messaging_service_sid": None,
        "num_media": "0",
        "num_segments": "1",
        "price": None,
        "price_unit": "USD",
        "status": "queued",
        "subresource_uris": {"media": f"/2010-04-01/Accounts/{ACCOUNT}/Messages/{sid}/Media.json"},
        "to": PHONE,
        "uri": f"/2010-04-01/Accounts/{ACCOUNT}/Messages/{sid}.json",
    }


async def test_a_message_of_a_messaging_service_is_accepted_and_has_no_sender(twilio: Client) -> None:
    service = "MG" + "b2" * 16

    message = await twilio.messages.create_async(to=PHONE, messaging_service_sid=service, body="Hello")

    assert (message.status, message.from_, message.num_segments) == ("accepted", None, "0")
    assert message.messaging_service_sid == service


async def test_a_message_is_delivered_in_the_end(sms: Address, twilio: Client) -> None:
    created = await twilio.messages.create_async(to=PHONE, from_=SENDER, body="Hello")

    await eventually(lambda: sms.sandbox.store.newest(PHONE, 1)[0].status, lambda status: status == "delivered")

    fetched = await twilio.messages(created.sid).fetch_async()
    assert fetched.status == "delivered"
    assert fetched.date_sent is not None


async def test_a_list_is_newest_first_and_follows_its_pages_with_its_filters(twilio: Client) -> None:
    for number in range(5):
        await twilio.messages.create_async(to=PHONE, from_=SENDER, body=f"text {number}")
        await twilio.messages.create_async(to="+447700900999", from_=SENDER, body="for another phone")

    bodies = [message.body for message in await twilio.messages.list_async(to=PHONE, page_size=2)]

    assert bodies == ["text 4", "text 3", "text 2", "text 1", "text 0"]


async def test_a_text_that_arrives_between_two_pages_shifts_nothing(twilio: Client) -> None:
    for number in range(4):
        await twilio.messages.create_async(to=PHONE, from_=SENDER, body=f"text {number}")
    first = await twilio.messages.page_async(to=PHONE, page_size=2)

    await twilio.messages.create_async(to=PHONE, from_=SENDER, body="in between")

    second = await first.next_page_async()
    assert second is not None
    assert [message.body for message in second] == ["text 1", "text 0"]
    assert second.next_page_url is None


async def test_a_list_filters_by_sender_and_by_the_day_it_was_sent(sms: Address, twilio: Client) -> None:
    await twilio.messages.create_async(to=PHONE, from_=SENDER, body="one")
    await twilio.messages.create_async(to=PHONE, from_="+15005550010", body="other")
    newest = sms.sandbox.store.newest
    sent = await eventually(lambda: [message.sent_at for message in newest(PHONE, 2)], all)
    today = datetime.fromtimestamp(sent[0] or 0, UTC)
    yesterday, tomorrow = today - timedelta(days=1), today + timedelta(days=1)

    async def count(**filters: object) -> int:
        return len(await twilio.messages.list_async(**filters))

    assert await count(from_=SENDER) == 1
    assert await count(date_sent=today) == 2
    assert await count(date_sent=yesterday) == 0
    assert await count(date_sent_after=today, date_sent_before=today) == 2  # both ends are included
    assert await count(date_sent_after=tomorrow) == 0
    assert await count(date_sent_before=yesterday) == 0


GOOD = {"To": PHONE, "From": SENDER, "Body": "Hello"}


REFUSED: list[tuple[dict[str, str], int, int]] = [
    ({"To": ""}, 21604, 400),
    ({"From": ""}, 21603, 400),
    ({"Body": ""}, 21602, 400),
    ({"Body": "x" * 1601}, 21617, 400),
    ({"To": "07700 900123"}, 21211, 400),
    ({"From": "?"}, 21212, 400),
    ({"StatusCallback": "ftp://example.org"}, 21609, 400),
    ({"StatusCallback": "http://notification_api:8402/webhooks"}, 21609, 400),
    ({"To": "+15005550001"}, 21211, 400),
    ({"To": "+15005550002"}, 21612, 400),
    ({"To": "+15005550003"}, 21408, 400),
    ({"To": "+15005550004"}, 21610, 400),
    ({"To": "+15005550009"}, 21614, 400),
    ({"From": "+15005550001"}, 21212, 400),
    ({"From": "+15005550007"}, 21606, 400),
    ({"From": "+15005550008"}, 21611, 429),
]


async def test_a_bad_request_is_refused_with_twilios_code(api: httpx.AsyncClient) -> None:
    for change, code, status in REFUSED:
        response = await api.post(MESSAGES, data={**GOOD, **change}, auth=(ACCOUNT, TOKEN))

        error = response.json()
        assert (response.status_code, error["status"], error["code"]) == (status, status, code), change
        assert error["more_info"] == f"https://www.twilio.com/docs/errors/{code}"
        assert error["message"]
    assert (await api.get("/sandbox/messages")).json()["items"] == []


STRANGERS = [
    "",
    "Basic !!!",
    "Basic " + base64.b64encode(b"stranger:token").decode(),
    "Basic " + base64.b64encode(f"{ACCOUNT}:".encode()).decode(),
    "Basic " + base64.b64encode(b"AC" + b"f" * 32 + b":token").decode(),
    "Bearer " + base64.b64encode(f"{ACCOUNT}:{TOKEN}".encode()).decode(),
]


async def test_a_stranger_is_answered_401(api: httpx.AsyncClient) -> None:
    for authorization in STRANGERS:
        response = await api.post(MESSAGES, data=GOOD, headers={"Authorization": authorization})

        assert (response.status_code, response.json()["code"]) == (401, 20003), authorization


async def test_the_client_understands_a_refusal(twilio: Client) -> None:
    with pytest.raises(TwilioRestException) as refused:
        await twilio.messages.create_async(to="+15005550009", from_=SENDER, body="Hello")

    assert (refused.value.code, refused.value.status) == (21614, 400)


async def test_a_message_that_does_not_exist_is_not_found(twilio: Client) -> None:
    with pytest.raises(TwilioRestException) as missing:
        await twilio.messages("SM" + "0" * 32).fetch_async()

    assert (missing.value.code, missing.value.status) == (20404, 404)


async def test_one_account_does_not_see_the_messages_of_another(sms: Address, twilio: Client) -> None:
    created = await twilio.messages.create_async(to=PHONE, from_=SENDER, body="Hello")
    other = "AC" + "0" * 32

    async with httpx.AsyncClient(base_url=sms.url, auth=(other, TOKEN), trust_env=False) as stranger:
        listed = await stranger.get(f"/2010-04-01/Accounts/{other}/Messages.json")
        fetched = await stranger.get(f"/2010-04-01/Accounts/{other}/Messages/{created.sid}.json")

    assert listed.json()["messages"] == []
    assert fetched.status_code == 404


async def test_a_list_that_cannot_be_understood_is_refused(api: httpx.AsyncClient) -> None:
    for query in ("DateSent=soon", "PageSize=many", "Page=-1"):
        response = await api.get(f"{MESSAGES}?{query}", auth=(ACCOUNT, TOKEN))

        assert (response.status_code, response.json()["code"]) == (400, 20001), query


@pytest.mark.system
async def test_only_the_configured_token_is_accepted(tmp_path: Path) -> None:
    async with running(tmp_path, auth_token="right") as sms:
        async with twilio_client(sms.url, token="right") as client:
            await client.messages.create_async(to=PHONE, from_=SENDER, body="Hello")
        async with twilio_client(sms.url, token="wrong") as client:
            with pytest.raises(TwilioRestException) as refused:
                await client.messages.create_async(to=PHONE, from_=SENDER, body="Hello")

        assert (refused.value.code, refused.value.status) == (20003, 401)
        assert len(sms.sandbox.store.newest(PHONE, 10)) == 1


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("", 1),
        ("x" * 160, 1),
        ("x" * 161, 2),
        ("x" * 306, 2),
        ("x" * 307, 3),
        ("€" * 80, 1),
        ("€" * 81, 2),
        ("x" * 152 + "€" + "x" * 152, 3),  # the euro sign does not fit into the first part and pushes the rest
        ("á" * 70, 1),
        ("á" * 71, 2),
        ("á" * 134, 2),
        ("á" * 135, 3),
        ("x" * 138 + "🌿", 3),  # one emoji, and 140 characters cost three
        ("🌿" * 35, 1),
        ("🌿" * 36, 2),
        ("🌿" * 67, 3),  # 33 to a part: a pair is never torn
    ],
)
def test_segments_are_counted_as_the_network_counts_them(text: str, segments: int) -> None:
    assert count_segments(text) == segments

"""What the sandbox tells: callbacks to the sender, replies to the application, and everything to the page."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from httpx import AsyncClient

from sms_sandbox import Address, running

from .parts import PHONE, SENDER, TOKEN, Client, TwilioRestException, WebhookReceiver, eventually

IN_ORDER = ["sending", "sent", "delivered"]


async def send(client: Client, receiver: WebhookReceiver) -> str:
    callback = f"{receiver.url}/status?nid=0198%2Dab&attempt=1"
    message = await client.messages.create_async(to=PHONE, from_=SENDER, body="Hello", status_callback=callback)
    return str(message.sid)


async def settled(sms: Address) -> None:
    """Waits until the message is final and no webhook waits: nothing more will come."""
    store = sms.sandbox.store
    await eventually(lambda: store.newest(PHONE, 1)[0].step_at is None and not store.waiting_callbacks(limit=1), bool)


async def test_each_status_but_the_first_is_sent_in_order_and_signed(
    sms: Address, twilio: Client, receiver: WebhookReceiver
) -> None:
    sid = await send(twilio, receiver)

    await settled(sms)

    assert receiver.statuses() == IN_ORDER
    assert all(webhook.is_signed_with(TOKEN) for webhook in receiver.taken)
    assert not any(webhook.is_signed_with("another") for webhook in receiver.taken)
    first = receiver.taken[0]
    assert first.url == f"{receiver.url}/status?nid=0198%2Dab&attempt=1"
    assert (first.form["MessageSid"], first.form["To"], first.form["From"]) == (sid, PHONE, SENDER)
    assert "ErrorCode" not in first.form


async def test_undelivered_ends_with_its_error(
    sms: Address, api: AsyncClient, twilio: Client, receiver: WebhookReceiver
) -> None:
    await api.put("/faults/undelivered", json={"code": 30005})

    sid = await send(twilio, receiver)
    await settled(sms)

    fetched = await twilio.messages(sid).fetch_async()
    assert receiver.statuses() == ["sending", "sent", "undelivered"]
    assert receiver.taken[-1].form["ErrorCode"] == "30005"
    assert (fetched.error_code, fetched.error_message) == (30005, "Unknown destination handset")


@pytest.mark.parametrize(
    ("fault", "settings", "statuses"),
    [
        ("callbacks-lost", {"times": 2}, ["delivered"]),
        ("callbacks-doubled", {}, ["sending", "sending", "sent", "sent", "delivered", "delivered"]),
        ("callbacks-reordered", {}, ["delivered", "sent", "sending"]),
    ],
)
async def test_callbacks_are_lost_doubled_or_reordered_by_their_faults(
    sms: Address,
    api: AsyncClient,
    twilio: Client,
    receiver: WebhookReceiver,
    fault: str,
    settings: dict[str, int],
    statuses: list[str],
) -> None:
    await api.put(f"/faults/{fault}", json=settings)

    await send(twilio, receiver)
    await settled(sms)

    assert receiver.statuses() == statuses


@pytest.mark.parametrize(
    ("answers", "statuses"),
    [([403], IN_ORDER), ([503], ["sending", *IN_ORDER]), ([503, 503], ["sending", *IN_ORDER])],
    ids=["a refusal is not retried", "sent again before the next", "given up after its retries"],
)
async def test_a_callback_is_retried_as_often_as_it_may_with_the_same_token(
    sms: Address, twilio: Client, receiver: WebhookReceiver, answers: list[int], statuses: list[str]
) -> None:
    receiver.answers = answers

    await send(twilio, receiver)
    await settled(sms)

    assert receiver.statuses() == statuses
    tokens = {(webhook.token, webhook.form["MessageStatus"]) for webhook in receiver.taken}
    assert len(tokens) == len({token for token, _ in tokens}) == len(IN_ORDER)


async def test_a_callback_to_a_closed_port_holds_up_nothing(sms: Address, twilio: Client) -> None:
    await send(twilio, WebhookReceiver(url="http://127.0.0.1:9"))

    await settled(sms)

    assert sms.sandbox.store.newest(PHONE, 1)[0].status == "delivered"


class TestReplies:
    @pytest.fixture
    async def sms(self, tmp_path: Path, receiver: WebhookReceiver) -> AsyncIterator[Address]:
        async with running(tmp_path / "sms", inbound_url=f"{receiver.url}/inbound") as address:
            yield address

    async def test_a_reply_reaches_the_application_signed(
        self, sms: Address, api: AsyncClient, twilio: Client, receiver: WebhookReceiver
    ) -> None:
        await twilio.messages.create_async(to=PHONE, from_="+15005550010", body="Hello")

        response = await api.post("/sandbox/inbound", json={"from": PHONE, "body": "Lovely to hear"})

        await eventually(lambda: receiver.taken, lambda taken: len(taken) == 1)
        (webhook,) = receiver.taken
        assert response.status_code == 201
        assert webhook.url == f"{receiver.url}/inbound"
        assert webhook.is_signed_with(TOKEN)
        assert (webhook.form["From"], webhook.form["To"]) == (PHONE, "+15005550010")
        assert webhook.form["Body"] == "Lovely to hear"
        assert "OptOutType" not in webhook.form

    async def test_a_phone_that_says_stop_is_refused_until_it_says_start(
        self, sms: Address, api: AsyncClient, twilio: Client, receiver: WebhookReceiver
    ) -> None:
        for word in ("STOP", "stop", " Stop. ", "Unsubscribe", "STOPALL"):
            await api.post("/sandbox/inbound", json={"from": PHONE, "body": word})

            with pytest.raises(TwilioRestException) as refused:
                await twilio.messages.create_async(to=PHONE, from_=SENDER, body="Hello")
            await api.post("/sandbox/inbound", json={"from": PHONE, "body": "START"})
            await twilio.messages.create_async(to=PHONE, from_=SENDER, body="Hello again")

            assert refused.value.code == 21610, word
        await eventually(lambda: len(receiver.taken), lambda count: count == 10)
        assert sorted(webhook.form["OptOutType"] for webhook in receiver.taken) == ["START"] * 5 + ["STOP"] * 5

    async def test_a_sentence_with_stop_in_it_stops_nothing(
        self, sms: Address, api: AsyncClient, twilio: Client
    ) -> None:
        await api.post("/sandbox/inbound", json={"from": PHONE, "body": "please do not stop"})

        await twilio.messages.create_async(to=PHONE, from_=SENDER, body="Hello")

    async def test_a_reply_from_nowhere_is_refused(self, api: AsyncClient) -> None:
        for wrong in ({"from": "me", "body": "Hello"}, {"from": PHONE, "body": ""}, {"body": "Hello"}, {}):
            response = await api.post("/sandbox/inbound", json=wrong)

            assert response.status_code == 400
            assert response.headers["Content-Type"] == "application/problem+json"


async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, object]]:
    name = ""
    async for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def test_the_page_loads_and_may_run_only_its_own_files(api: AsyncClient) -> None:
    page = await api.get("/")

    assert page.headers["Content-Type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    files = {"/page/phones.css": "text/css", "/page/phones.js": "text/javascript", "/page/fern.svg": "image/svg"}
    for path, kind in files.items():
        assert path in page.text
        assert (await api.get(path)).headers["Content-Type"].startswith(kind)
    assert (await api.get("/page/index.html")).status_code == 404


async def test_a_text_appears_live_and_is_followed_until_it_is_delivered(api: AsyncClient, twilio: Client) -> None:
    async with api.stream("GET", "/sandbox/events") as response:
        feed = events(response.aiter_lines())
        assert (await anext(feed))[0] == "ready"

        await twilio.messages.create_async(to=PHONE, from_=SENDER, body="<b>Hello</b>")

        statuses = []
        async for name, data in feed:
            assert name == "message"
            assert isinstance(data, dict)
            assert (data["to"], data["body"]) == (PHONE, "<b>Hello</b>")
            statuses.append(data["status"])
            if data["status"] == "delivered":
                break
        assert statuses == ["queued", "sending", "sent", "delivered"]


async def test_faults_opt_outs_and_clearing_are_told_live(api: AsyncClient) -> None:
    async with api.stream("GET", "/sandbox/events") as response:
        feed = events(response.aiter_lines())
        await anext(feed)

        await api.put("/faults/slow", json={})
        await api.post("/sandbox/inbound", json={"from": PHONE, "body": "STOP"})
        await api.delete("/sandbox/messages")

        seen = [await anext(feed) for _ in range(4)]
        assert [name for name, _ in seen] == ["faults", "message", "opt-outs", "cleared"]
        assert seen[2][1] == {"items": [PHONE]}


async def test_clearing_removes_the_texts_and_what_would_be_told_of_them(
    sms: Address, api: AsyncClient, twilio: Client
) -> None:
    await twilio.messages.create_async(to=PHONE, from_=SENDER, body="Hello", status_callback="http://127.0.0.1:9/")

    assert (await api.delete("/sandbox/messages")).status_code == 204

    assert (await api.get("/sandbox/messages")).json() == {"items": [], "total": 0}
    assert sms.sandbox.store.waiting_callbacks(limit=1) == []


async def test_the_sandbox_lists_newest_first_by_phone_and_limit(api: AsyncClient, twilio: Client) -> None:
    for number in range(3):
        await twilio.messages.create_async(to=PHONE, from_=SENDER, body=f"text {number}")
    await twilio.messages.create_async(to="+447700900999", from_=SENDER, body="for another phone")

    await api.post("/sandbox/inbound", json={"from": "+447700900999", "body": "a reply"})

    listed = (await api.get("/sandbox/messages", params={"to": PHONE, "limit": 2})).json()

    assert [item["body"] for item in listed["items"]] == ["text 2", "text 1"]
    assert listed["total"] == 4
    assert (await api.get("/sandbox/messages?limit=0")).status_code == 400

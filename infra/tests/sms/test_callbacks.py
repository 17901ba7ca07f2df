from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from fern.sms import Address, running

from .parts import PHONE, SENDER, TOKEN, Client, Receiver, TwilioRestException, eventually

IN_ORDER = ["sending", "sent", "delivered"]


async def send(client: Client, receiver: Receiver) -> str:
    callback = f"{receiver.url}/status?nid=0198%2Dab&attempt=1"
    message = await client.messages.create_async(to=PHONE, from_=SENDER, body="Hello", status_callback=callback)
    return str(message.sid)


def all_told(sms: Address) -> bool:
    """The message is final and no webhook waits: nothing more will come."""
    (message,) = sms.sandbox.store.newest(PHONE, 1)
    return message.step_at is None and not sms.sandbox.store.waiting_callbacks(limit=1)


async def settled(sms: Address) -> None:
    await eventually(lambda: all_told(sms), bool)


async def test_each_status_but_the_first_is_told_in_order_and_signed(
    sms: Address, twilio: Client, receiver: Receiver
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
    sms: Address, api: httpx.AsyncClient, twilio: Client, receiver: Receiver
) -> None:
    await api.put("/faults/undelivered", json={"code": 30005})

    sid = await send(twilio, receiver)
    await settled(sms)

    fetched = await twilio.messages(sid).fetch_async()
    assert receiver.statuses() == ["sending", "sent", "undelivered"]
    assert receiver.taken[-1].form["ErrorCode"] == "30005"
    assert (fetched.error_code, fetched.error_message) == (30005, "Unknown destination handset")


async def test_lost_callbacks_do_not_come(
    sms: Address, api: httpx.AsyncClient, twilio: Client, receiver: Receiver
) -> None:
    await api.put("/faults/callbacks-lost", json={"times": 2})

    await send(twilio, receiver)
    await settled(sms)

    assert receiver.statuses() == ["delivered"]


async def test_doubled_callbacks_come_twice(
    sms: Address, api: httpx.AsyncClient, twilio: Client, receiver: Receiver
) -> None:
    await api.put("/faults/callbacks-doubled", json={})

    await send(twilio, receiver)
    await settled(sms)

    assert receiver.statuses() == ["sending", "sending", "sent", "sent", "delivered", "delivered"]


async def test_reordered_callbacks_come_backwards(
    sms: Address, api: httpx.AsyncClient, twilio: Client, receiver: Receiver
) -> None:
    await api.put("/faults/callbacks-reordered", json={})

    await send(twilio, receiver)
    await settled(sms)

    assert receiver.statuses() == ["delivered", "sent", "sending"]


async def test_a_callback_that_meets_a_5xx_is_told_again_before_the_next(
    sms: Address, twilio: Client, receiver: Receiver
) -> None:
    receiver.answers = [503]

    await send(twilio, receiver)
    await settled(sms)

    assert receiver.statuses() == ["sending", *IN_ORDER]
    assert receiver.taken[0].token == receiver.taken[1].token != receiver.taken[2].token


async def test_a_callback_that_is_refused_is_not_told_again(sms: Address, twilio: Client, receiver: Receiver) -> None:
    receiver.answers = [403]

    await send(twilio, receiver)
    await settled(sms)

    assert receiver.statuses() == IN_ORDER


async def test_a_callback_is_given_up_after_its_retries(sms: Address, twilio: Client, receiver: Receiver) -> None:
    receiver.answers = [503, 503]

    await send(twilio, receiver)
    await settled(sms)

    assert receiver.statuses() == ["sending", *IN_ORDER]


async def test_a_callback_to_nobody_holds_up_nothing(sms: Address, twilio: Client) -> None:
    await send(twilio, Receiver(url="http://127.0.0.1:9"))

    await settled(sms)

    assert sms.sandbox.store.newest(PHONE, 1)[0].status == "delivered"


class TestReplies:
    @pytest.fixture
    async def sms(self, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Address]:
        async with running(tmp_path / "sms", inbound_url=f"{receiver.url}/inbound") as address:
            yield address

    async def test_a_reply_reaches_the_application_signed(
        self, sms: Address, api: httpx.AsyncClient, twilio: Client, receiver: Receiver
    ) -> None:
        await twilio.messages.create_async(to=PHONE, from_="+15005550010", body="Hello")

        response = await api.post("/sandbox/inbound", json={"from": PHONE, "body": "Lovely news"})

        await eventually(lambda: receiver.taken, lambda taken: len(taken) == 1)
        (webhook,) = receiver.taken
        assert response.status_code == 201
        assert webhook.url == f"{receiver.url}/inbound"
        assert webhook.is_signed_with(TOKEN)
        assert (webhook.form["From"], webhook.form["To"]) == (PHONE, "+15005550010")
        assert webhook.form["Body"] == "Lovely news"
        assert "OptOutType" not in webhook.form

    async def test_a_phone_that_says_stop_is_refused_until_it_says_start(
        self, sms: Address, api: httpx.AsyncClient, twilio: Client, receiver: Receiver
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
        self, sms: Address, api: httpx.AsyncClient, twilio: Client
    ) -> None:
        await api.post("/sandbox/inbound", json={"from": PHONE, "body": "please do not stop"})

        await twilio.messages.create_async(to=PHONE, from_=SENDER, body="Hello")

    async def test_a_reply_from_nowhere_is_refused(self, api: httpx.AsyncClient) -> None:
        for wrong in ({"from": "me", "body": "Hello"}, {"from": PHONE, "body": ""}, {"body": "Hello"}, {}):
            response = await api.post("/sandbox/inbound", json=wrong)

            assert response.status_code == 400
            assert response.headers["Content-Type"] == "application/problem+json"

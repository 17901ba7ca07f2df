import asyncio
import time

import aiohttp
import pytest
import requests  # type: ignore[import-untyped,unused-ignore]
from httpx import AsyncClient

from sms_sandbox import Address

from .parts import ACCOUNT, PHONE, SENDER, TOKEN, Client, TwilioRestException, eventually, twilio_client

AN_HOUR = 3600


async def send(client: Client, body: str = "Hello", to: str = PHONE) -> str:
    return str((await client.messages.create_async(to=to, from_=SENDER, body=body)).sid)


async def listed(client: Client, to: str = PHONE) -> list[str]:
    return [message.body for message in await client.messages.list_async(to=to)]


async def exists(api: AsyncClient, to: str = PHONE) -> list[str]:
    return [item["body"] for item in (await api.get("/sandbox/messages", params={"to": to})).json()["items"]]


async def switch_on(api: AsyncClient, name: str, **settings: object) -> None:
    (await api.put(f"/faults/{name}", json=settings)).raise_for_status()


async def test_no_fault_is_on_by_default(api: AsyncClient) -> None:
    items = (await api.get("/faults")).json()["items"]

    assert len(items) == 12
    assert not any(item["active"] for item in items)
    assert all(item["description"] and item["rate"] == 0 for item in items)


async def test_reply_lost_creates_the_message_and_closes_the_connection(api: AsyncClient, twilio: Client) -> None:
    await send(twilio, "first, so that the connection is one already used")
    await switch_on(api, "reply-lost")

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await send(twilio, "lost")

    assert (await listed(twilio)).count("lost") == 1


async def test_reply_lost_looks_to_the_sync_client_like_a_broken_connection(sms: Address, api: AsyncClient) -> None:
    client = Client(ACCOUNT, TOKEN)
    client.api.base_url = sms.url
    await switch_on(api, "reply-lost")

    with pytest.raises(requests.exceptions.ConnectionError):
        await asyncio.to_thread(client.messages.create, to=PHONE, from_=SENDER, body="lost")

    assert await exists(api) == ["lost"]


async def test_request_lost_creates_nothing_and_closes_the_connection(api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "request-lost")

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await send(twilio)

    assert await exists(api) == []


async def test_created_500_creates_the_message_although_it_answers_500(api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "created-500")

    with pytest.raises(TwilioRestException) as failed:
        await send(twilio)

    assert (failed.value.status, failed.value.code) == (500, 20500)
    assert await listed(twilio) == ["Hello"]


async def test_created_late_hides_the_message_until_it_is_created(api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "created-late", seconds=AN_HOUR)

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await send(twilio)

    assert await listed(twilio) == []
    assert await exists(api) == []


async def test_created_late_creates_the_message_in_the_end(sms: Address, api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "created-late", seconds=0.1)
    before = time.time()

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await send(twilio)

    found = await eventually(lambda: sms.sandbox.store.newest(PHONE, 10), lambda found: len(found) > 0)
    assert found[0].created_at >= before + 0.1
    assert await listed(twilio) == ["Hello"]


@pytest.mark.parametrize(
    ("fault", "settings", "code"), [("refused", {"code": 21611}, 21611), ("rate-limited", {}, 20429)]
)
async def test_refused_and_rate_limited_answer_with_their_error_and_create_nothing(
    api: AsyncClient, twilio: Client, fault: str, settings: dict[str, int], code: int
) -> None:
    await switch_on(api, fault, **settings)

    with pytest.raises(TwilioRestException) as refused:
        await send(twilio)

    assert (refused.value.status, refused.value.code) == (429, code)
    assert await exists(api) == []


async def test_slow_delays_the_answer_of_a_message_that_exists(api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "slow", seconds=AN_HOUR)

    sending = asyncio.create_task(send(twilio))
    await eventually(lambda: listed(twilio), lambda bodies: bodies == ["Hello"])

    assert not sending.done()
    sending.cancel()


async def test_slow_answers_after_its_seconds(api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "slow", seconds=0.2)
    before = time.monotonic()

    sid = await send(twilio)

    assert time.monotonic() - before >= 0.2
    assert (await twilio.messages(sid).fetch_async()).body == "Hello"


async def test_list_lag_hides_the_message_from_lists_but_not_from_a_fetch(api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "list-lag", seconds=AN_HOUR, times=1)

    hidden = await send(twilio, "hidden")
    await send(twilio, "seen")

    assert await listed(twilio) == ["seen"]
    assert (await twilio.messages(hidden).fetch_async()).body == "hidden"
    assert set(await exists(api)) == {"hidden", "seen"}


async def test_list_lag_ends(api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "list-lag", seconds=0.1)
    await send(twilio)

    await eventually(lambda: listed(twilio), lambda bodies: bodies == ["Hello"])


async def test_a_fault_with_times_strikes_that_often_and_is_off(api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "rate-limited", times=2)

    for _ in range(2):
        with pytest.raises(TwilioRestException):
            await send(twilio)
    await send(twilio)

    assert (await api.get("/health")).json()["faults"] == []


async def test_the_same_seed_gives_each_phone_the_same_faults_in_any_order_of_requests(
    api: AsyncClient, twilio: Client
) -> None:
    phones = [f"+4477009001{number:02}" for number in range(10)]

    async def struck(order: list[str]) -> dict[str, list[bool]]:
        await switch_on(api, "rate-limited", rate=0.5, seed=7)
        seen: dict[str, list[bool]] = {phone: [] for phone in phones}
        for phone in order:
            try:
                await send(twilio, to=phone)
                seen[phone].append(False)
            except TwilioRestException:
                seen[phone].append(True)
        return seen

    first, second = await struck(phones * 3), await struck([phone for phone in reversed(phones) for _ in range(3)])

    assert first == second
    draws = [hit for hits in first.values() for hit in hits]
    assert 0 < sum(draws) < len(draws)


async def test_a_cleared_fault_strikes_no_more(api: AsyncClient, twilio: Client) -> None:
    for clear in ("/faults/rate-limited", "/faults"):
        await switch_on(api, "rate-limited")

        assert (await api.delete(clear)).status_code == 204

        await send(twilio)


async def test_a_rate_of_nought_switches_a_fault_off(api: AsyncClient, twilio: Client) -> None:
    await switch_on(api, "rate-limited")

    response = await api.put("/faults/rate-limited", json={"rate": 0})

    assert response.json()["active"] is False
    await send(twilio)


NONSENSE: list[tuple[str, object, int, str]] = [
    ("reply-lots", {}, 404, "there is no fault 'reply-lots'"),
    ("reply-lost", {"rate": 2}, 400, "rate must be a number from 0 to 1, not 2"),
    ("reply-lost", {"rate": True}, 400, "rate must be a number"),
    ("reply-lost", {"rate": "often"}, 400, "rate must be a number"),
    ("reply-lost", {"seconds": 1}, 400, "reply-lost has no seconds; it takes rate, times, seed"),
    ("reply-lost", {"times": 0}, 400, "times must be a whole number from 1"),
    ("reply-lost", {"times": 1.5}, 400, "times must be a whole number from 1"),
    ("reply-lost", {"seed": -1}, 400, "seed must be a whole number from 0"),
    ("slow", {"seconds": -1}, 400, "seconds must be a number from 0 to 3600"),
    ("refused", {"code": 1}, 400, "code must be one of 20001"),
    ("refused", {"code": [1]}, 400, "code must be one of 20001"),
    ("refused", [], 400, "the body must be a JSON object"),
]


async def test_a_fault_that_makes_no_sense_is_refused_with_a_sentence(api: AsyncClient) -> None:
    for name, body, status, sentence in NONSENSE:
        response = await api.put(f"/faults/{name}", json=body)

        assert response.headers["Content-Type"] == "application/problem+json"
        assert response.status_code == status
        assert sentence in response.json()["detail"]
    assert (await api.get("/health")).json()["faults"] == []


async def test_many_senders_at_once_are_all_served(sms: Address) -> None:
    async with twilio_client(sms.url) as client:
        sids = await asyncio.gather(*(send(client, f"text {number}") for number in range(100)))

        assert len(set(sids)) == 100
        assert len(await listed(client)) == 100

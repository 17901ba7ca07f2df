import json
from collections.abc import AsyncIterator

import httpx

from fern.sms import Address

from .parts import PHONE, SENDER, Client


async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, object]]:
    name = ""
    async for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def test_the_page_loads_and_may_run_only_its_own_files(api: httpx.AsyncClient) -> None:
    page = await api.get("/")

    assert page.headers["Content-Type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    for path, kind in (
        ("/page/phones.css", "text/css"),
        ("/page/phones.js", "text/javascript"),
        ("/page/fern.svg", "image/svg"),
    ):
        assert path in page.text
        assert (await api.get(path)).headers["Content-Type"].startswith(kind)
    assert (await api.get("/page/index.html")).status_code == 404


async def test_a_text_appears_live_and_is_followed_until_it_is_delivered(
    api: httpx.AsyncClient, twilio: Client
) -> None:
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


async def test_faults_opt_outs_and_clearing_are_told_live(api: httpx.AsyncClient) -> None:
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
    sms: Address, api: httpx.AsyncClient, twilio: Client
) -> None:
    await twilio.messages.create_async(to=PHONE, from_=SENDER, body="Hello", status_callback="http://127.0.0.1:9/")

    assert (await api.delete("/sandbox/messages")).status_code == 204

    assert (await api.get("/sandbox/messages")).json() == {"items": []}
    assert sms.sandbox.store.waiting_callbacks(limit=1) == []


async def test_the_sandbox_lists_newest_first_by_phone_and_limit(api: httpx.AsyncClient, twilio: Client) -> None:
    for number in range(3):
        await twilio.messages.create_async(to=PHONE, from_=SENDER, body=f"text {number}")
    await twilio.messages.create_async(to="+447700900999", from_=SENDER, body="for another phone")

    items = (await api.get("/sandbox/messages", params={"to": PHONE, "limit": 2})).json()["items"]

    assert [item["body"] for item in items] == ["text 2", "text 1"]
    assert (await api.get("/sandbox/messages?limit=0")).status_code == 400

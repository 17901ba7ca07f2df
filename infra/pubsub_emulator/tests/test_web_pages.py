"""What a web page that a developer visits can do to the emulator: nothing."""

import asyncio

import httpx
import pytest

from pubsub_emulator.server import Running

FOREIGN = {"Origin": "http://elsewhere.example"}
REBOUND = {"Host": "elsewhere.example", "Origin": "http://elsewhere.example", "Sec-Fetch-Site": "same-origin"}
ROUTES = [
    ("GET", "/"),
    ("GET", "/.well-known/openid-configuration"),
    ("GET", "/oauth2/v3/certs"),
    ("GET", "/backlog"),
    ("GET", "/faults"),
    ("PUT", "/faults/duplicate"),
    ("DELETE", "/faults/duplicate"),
    ("DELETE", "/faults"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_no_route_answers_to_a_foreign_name_and_none_changes_anything_for_a_foreign_page(
    emulator: Running, method: str, path: str
) -> None:
    async with httpx.AsyncClient(base_url=emulator.http_url, trust_env=False) as client:
        assert (await client.request(method, path, headers=REBOUND)).status_code == 403
        foreign = await client.request(method, path, headers=FOREIGN)
        assert foreign.status_code == (200 if method == "GET" else 403)
        assert not emulator.broker.faults.active
        assert (await client.request(method, path)).is_success  # as curl


async def test_a_body_that_is_too_large_or_too_deep_is_refused(emulator: Running) -> None:
    async with httpx.AsyncClient(base_url=emulator.http_url, trust_env=False) as client:
        large = await client.put("/faults/duplicate", content=b"x" * 100_000)
        deep = await client.put("/faults/duplicate", content=b"[" * 60_000)

    assert (large.status_code, deep.status_code) == (413, 422)


async def test_the_grpc_port_does_not_speak_what_a_page_can_send(emulator: Running) -> None:
    reader, writer = await asyncio.open_connection(*emulator.target.split(":"))
    writer.write(b"POST /google.pubsub.v1.Publisher/Publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()

    assert not answer.startswith(b"HTTP/")

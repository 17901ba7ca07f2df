"""A client that sends half a request, or too many connections, holds up no other: raw sockets against the real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.api import speaking_as
from servicekit.http.http_limits import MAX_HEAD
from tests.labour_parts import api_process, fetch, plan

DEADLINE = 60.0  # seconds; only ends a test that has failed
FOREVER = "3600"
SHORT = {"HTTP_HEADER_SECONDS": "0.1", "HTTP_BODY_SECONDS": "0.1"}

BODY = b'{"mother_name": "Ada"}'
HEAD = (
    "POST /api/v1/labours HTTP/1.1\r\nHost: localhost\r\n"
    f"Authorization: {speaking_as('ada')['Authorization']}\r\nContent-Length: {len(BODY)}\r\n"
).encode()
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        async with asyncio.timeout(DEADLINE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines)
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return int(status.split()[1]), headers, json.loads(body) if body else None

    async def end(self) -> bytes:
        """The rest of what arrives until the server closes the connection."""
        async with asyncio.timeout(DEADLINE):
            return await self._reader.read()


@asynccontextmanager
async def connected(client: AsyncClient, sent: bytes = b"") -> AsyncIterator[Connection]:
    address = urlsplit(str(client.base_url))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    connection = Connection(reader, writer)
    connection.send(sent)
    try:
        yield connection
    finally:
        writer.close()


@pytest.mark.parametrize(
    "half",
    [b"GET /health/li", HEAD, HEAD + b"\r\n" + BODY[:5], HEAD + b"Expect: 100-continue\r\n\r\n"],
    ids=["request line", "headers", "body", "body after 100"],
)
async def test_a_request_that_does_not_arrive_in_time_is_answered_408_and_has_no_effect(
    labour_url: str, labour_engine: AsyncEngine, half: bytes
) -> None:
    async with api_process(labour_url, **SHORT) as client, connected(client, half) as connection:
        if b"Expect" in half:
            assert (await connection.answer())[0] == 100
        status, headers, problem = await connection.answer()

        assert (status, problem["type"]) == (408, "urn:fernlabour:problem:request-timeout")
        assert (headers["content-type"], headers["connection"]) == ("application/problem+json", "close")
        assert await connection.end() == b""
        assert await fetch(labour_engine, "SELECT id FROM labour") == []


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
async def test_a_connection_without_a_request_is_closed(labour_url: str, sent: bytes) -> None:
    async with api_process(labour_url, **SHORT) as client, connected(client, sent) as connection:
        assert await connection.end() == b""


@pytest.mark.parametrize("more", [b"", b"\r\n"])
async def test_an_idle_connection_is_closed_after_a_request_too(labour_url: str, more: bytes) -> None:
    async with api_process(labour_url, HTTP_KEEP_ALIVE_SECONDS="1", **SHORT) as client, connected(client, LIVE) as one:
        assert (await one.answer())[0] == 200
        one.send(more)

        assert await one.end() == b""


async def test_a_second_request_that_does_not_arrive_is_answered_408_as_the_first(labour_url: str) -> None:
    async with api_process(labour_url, **SHORT) as client, connected(client, LIVE + LIVE[:20]) as connection:
        assert (await connection.answer())[0] == 200
        assert (await connection.answer())[0] == 408
        assert await connection.end() == b""


async def test_half_sent_requests_take_no_slot(labour_url: str) -> None:
    limits = {"HTTP_CONCURRENCY": "1", "HTTP_QUEUE": "0", "HTTP_BODY_SECONDS": FOREVER}
    async with api_process(labour_url, **limits) as client:
        half = HEAD + b"Expect: 100-continue\r\n\r\n" + BODY[:5]
        async with connected(client, half) as one, connected(client, half) as two:
            for slow in (one, two):
                assert (await slow.answer())[0] == 100  # the server has read the head

            assert (await client.get("/api/v1/labours")).json()["items"] == []
            one.send(BODY[5:])
            assert (await one.answer())[0] == 201


async def test_a_response_may_take_longer_than_a_request(labour_url: str) -> None:
    async with api_process(labour_url, **SHORT) as client:
        labour = await plan(client)
        async with client.stream("GET", f"{labour}/events", timeout=DEADLINE) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            async with connected(client, HEAD) as later:
                assert (await later.answer())[0] == 408

            await client.put(f"{labour}/begin")

            async with asyncio.timeout(DEADLINE):
                async for line in lines:
                    if '"phase":"early"' in line:
                        return
        pytest.fail("the stream ended")


async def test_requests_on_too_many_connections_are_refused_but_not_those_for_health(labour_url: str) -> None:
    async with (
        api_process(labour_url, HTTP_CONNECTIONS="1") as client,
        connected(client, LIVE) as first,
    ):
        assert (await first.answer())[0] == 200
        async with connected(client, LIVE) as crowded:
            assert (await crowded.answer())[0] == 200

            crowded.send(HEAD + b"\r\n" + BODY)

            status, headers, problem = await crowded.answer()
            assert (status, problem["type"]) == (503, "urn:fernlabour:problem:busy")
            assert headers["retry-after"] in ("1", "2", "3")
            assert (headers["connection"], headers["x-content-type-options"]) == ("close", "nosniff")
            assert await crowded.end() == b""
        first.send(HEAD + b"\r\n" + BODY)
        assert (await first.answer())[0] == 201


@pytest.mark.parametrize("character", [b"\x00", b"\x01", b"\x7f"])
async def test_a_control_character_in_a_header_is_answered_by_a_problem(labour_url: str, character: bytes) -> None:
    request = HEAD + b"Idempotency-Key: a" + character + b"b\r\n\r\n" + BODY
    async with api_process(labour_url) as client, connected(client, request) as connection:
        status, headers, problem = await connection.answer()

        assert (status, problem["type"]) == (400, "urn:fernlabour:problem:invalid-request")
        assert headers["content-type"] == "application/problem+json"


FILLER, MANY = b"a" * (MAX_HEAD + 1), b"X: a\r\n" * (MAX_HEAD // 6 + 1)
ENDLESS = {
    "target": b"GET /" + FILLER,
    "name of a header": LIVE[:-2] + FILLER,
    "value of a header": LIVE[:-2] + b"X: " + FILLER,
    "headers": LIVE[:-2] + MANY,
    "trailers": HEAD.replace(b"Content-Length: 22", b"Transfer-Encoding: chunked") + b"\r\n1\r\n{\r\n0\r\n" + MANY,
}


async def test_a_part_of_a_request_that_does_not_end_is_refused_before_it_fills_the_memory(labour_url: str) -> None:
    limits = {"HTTP_HEADER_SECONDS": FOREVER, "HTTP_BODY_SECONDS": FOREVER}
    async with api_process(labour_url, **limits) as client:
        for part, request in ENDLESS.items():
            async with connected(client, request) as connection:
                status, headers, problem = await connection.answer()

                assert (status, problem["type"]) == (431, "urn:fernlabour:problem:headers-too-large"), part
                assert headers["connection"] == "close"
        async with connected(client, LIVE[:-2] + b"X: " + b"a" * (MAX_HEAD // 2) + b"\r\n\r\n") as connection:
            assert (await connection.answer())[0] == 200


async def test_requests_in_one_packet_and_a_large_body_are_answered_in_order(labour_url: str) -> None:
    many = HEAD + b"\r\n" + BODY + LIVE
    large = HEAD.replace(b"Content-Length: 22", b"Content-Length: 300000") + b"\r\n" + b" " * 300_000
    async with api_process(labour_url) as client, connected(client, many) as connection:
        assert [(await connection.answer())[0] for _ in range(2)] == [201, 200]
        connection.send(large)
        status, _, problem = await connection.answer()
        assert (status, problem["type"]) == (413, "urn:fernlabour:problem:too-large")
        upgrade = LIVE.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    async with api_process(labour_url) as client, connected(client, upgrade) as connection:
        assert (await connection.answer())[0] == 200


async def test_a_stop_does_not_wait_for_half_a_request(labour_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncExitStack() as stack:
        async with api_process(labour_url, HTTP_BODY_SECONDS=FOREVER) as client:
            half = HEAD + b"Expect: 100-continue\r\n\r\n"
            connection = await stack.enter_async_context(connected(client, half))
            assert (await connection.answer())[0] == 100

        assert await connection.end() == b""
        assert "timeout graceful shutdown exceeded" not in caplog.text

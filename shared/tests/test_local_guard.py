"""A web page can neither read from nor write to a server that is meant for this machine; curl and the services can."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from servicekit.http.local_guard import LocalGuard

ROOT = Path(__file__).resolve().parents[2]


async def welcome(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def ask(method: str, headers: dict[str, str], **options: Any) -> httpx.Response:
    guarded = LocalGuard(welcome, **options)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url="http://127.0.0.1:8403") as client:
        return await client.request(method, "/", headers=headers)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8403", "[::1]:8403", "sms-sandbox:8403"])
async def test_a_program_may_do_anything_under_a_name_of_this_machine(method: str, host: str) -> None:
    assert (await ask(method, {"Host": host}, names=["sms-sandbox"])).status_code == 204


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "DELETE"])
@pytest.mark.parametrize(
    "host",
    [
        "elsewhere.example",
        "127.0.0.1.elsewhere.example",
        "elsewhere.example:8403",
        "localhost.",
        "localhost@elsewhere.example",
        "127.0.0.2",
        "[::2]",
        "localhost:port",
        "",
    ],
)
async def test_under_any_other_name_nothing_is_answered_not_even_to_its_own_page(method: str, host: str) -> None:
    answer = await ask(method, {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"})

    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"


async def test_two_hosts_are_none() -> None:
    sent = list[dict[str, Any]]()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"host", b"localhost")]
    await LocalGuard(welcome)({"type": "http", "method": "GET", "headers": headers}, None, send)

    assert sent[0]["status"] == 403


FOREIGN: list[dict[str, str]] = [
    {"Origin": "http://elsewhere.example"},
    {"Origin": "http://127.0.0.1:8400"},
    {"Origin": "https://127.0.0.1:8403"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://127.0.0.1:8403", "Sec-Fetch-Site": "cross-site"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_page_of_another_origin_may_follow_a_link_and_change_nothing(headers: dict[str, str]) -> None:
    assert (await ask("GET", headers)).status_code == 204
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await ask(method, headers)).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:8403", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=["its own page", "a page that is allowed", "typed"],
)
async def test_its_own_pages_and_those_that_are_allowed_may_change_things(headers: dict[str, str]) -> None:
    assert (await ask("POST", headers, origins=["http://localhost:3000"])).status_code == 204


def test_every_copy_of_the_guard_is_the_same() -> None:
    copies = [path.read_text() for path in ROOT.glob("*/*/*/local_guard.py")]

    assert len(copies) == 3
    assert len(set(copies)) == 1

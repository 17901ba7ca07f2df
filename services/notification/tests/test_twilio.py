"""Every way in which a call can end is one of five values, and a query without a readable answer never means "absent"."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from notification.delivery.twilio import (
    Accepted,
    Misconfigured,
    NotSent,
    PermanentlyRefused,
    SendOutcome,
    Unknown,
)
from notification.domain.errors import ProviderSilent
from sms_sandbox import Address, running

from .sms_parts import NOWHERE, PHONE, TOKEN, client, http, raw_provider, read_request, saying

pytestmark = pytest.mark.system


@pytest.fixture
async def sms(tmp_path: Path) -> AsyncIterator[Address]:
    async with running(tmp_path / "sms", auth_token=TOKEN) as address:
        yield address


def fault(sms: Address, name: str, **settings: float) -> None:
    sms.sandbox.faults.set(name, {"rate": 1, **settings})


async def send(
    url: str, *, to: str = PHONE, body: str = "The baby is here! #ABCDEFGH", **options: object
) -> SendOutcome:
    async with client(url, **options) as twilio:  # type: ignore[arg-type]
        return await twilio.send(to=to, body=body, status_callback=NOWHERE)


def created(sms: Address) -> int:
    return len(sms.sandbox.store.newest(None, 100))


async def test_an_accepted_message_has_the_providers_id(sms: Address) -> None:
    outcome = await send(sms.url)

    assert isinstance(outcome, Accepted)
    assert [message.sid for message in sms.sandbox.store.newest(PHONE, 10)] == [outcome.sid]


@pytest.mark.parametrize("code", [21211, 21212, 21408, 21606, 21610, 21612, 21614, 21635])
async def test_a_permanent_refusal_says_why_in_words(sms: Address, code: int) -> None:
    fault(sms, "refused", code=code)

    outcome = await send(sms.url)

    assert isinstance(outcome, PermanentlyRefused)
    assert outcome.code == code
    assert "error" not in outcome.reason, "a person should not need the provider's manual"
    assert not any(digit in outcome.reason for digit in "0123456789"), "neither a code nor a phone number"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        ({"to": "+15005550001"}, 21211),
        ({"to": "+15005550002"}, 21612),
        ({"to": "+15005550003"}, 21408),
        ({"to": "+15005550004"}, 21610),
        ({"to": "+15005550009"}, 21614),
        ({"sender": "+15005550001"}, 21212),
        ({"sender": "+15005550007"}, 21606),
    ],
)
async def test_the_providers_magic_numbers_are_refused(sms: Address, number: dict[str, str], code: int) -> None:
    outcome = await send(sms.url, **number)

    assert isinstance(outcome, PermanentlyRefused)
    assert outcome.code == code


async def test_a_refusal_that_is_not_listed_is_permanent_too(sms: Address) -> None:
    outcome = await send(sms.url, body="x" * 1601)

    assert outcome == PermanentlyRefused(21617, "the provider refused it (error 21617)")


async def test_wrong_credentials_are_misconfigured(sms: Address) -> None:
    outcome = await send(sms.url, token="not-the-token")

    assert isinstance(outcome, Misconfigured)
    assert created(sms) == 0


async def test_too_many_requests_means_not_sent(sms: Address) -> None:
    fault(sms, "rate-limited")

    outcome = await send(sms.url)

    assert isinstance(outcome, NotSent)
    assert outcome.retry_in < 60
    assert created(sms) == 0


async def test_a_full_queue_waits_for_minutes(sms: Address) -> None:
    outcome = await send(sms.url, sender="+15005550008")

    assert isinstance(outcome, NotSent)
    assert outcome.retry_in >= 60


async def test_an_unknown_host_means_not_sent() -> None:
    assert isinstance(await send("http://no-such-host.invalid"), NotSent)


async def test_a_refused_connection_means_not_sent() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it does not listen
        outcome = await send(f"http://127.0.0.1:{closed.getsockname()[1]}")

    assert isinstance(outcome, NotSent)


async def test_a_connection_that_is_never_made_means_not_sent() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:  # the queue of the listener is full: the kernel answers no further connection
            filler.setblocking(False)
            filler.connect_ex(address)
        try:
            outcome = await send(f"http://127.0.0.1:{address[1]}", timeout=1.0)
        finally:
            for filler in fillers:
                filler.close()

    assert isinstance(outcome, NotSent)


@pytest.mark.parametrize("name", ["reply-lost", "created-500", "slow"])
async def test_a_message_created_without_a_readable_answer_is_unknown(sms: Address, name: str) -> None:
    fault(sms, name)

    outcome = await send(sms.url, timeout=3.0)

    assert isinstance(outcome, Unknown)
    assert created(sms) == 1, "and the client has not retried by itself"


@pytest.mark.parametrize("name", ["request-lost", "created-late"])
async def test_a_connection_that_ends_without_an_answer_is_unknown(sms: Address, name: str) -> None:
    fault(sms, name)

    outcome = await send(sms.url)

    assert isinstance(outcome, Unknown)


def unreadable(status: str) -> dict[str, bytes]:
    return {
        "garbage": http(status, "not JSON at all"),
        "a proxy's page": http(status, "<html>hello</html>", "text/html"),
        "a proxy's page with 503": http("503 Service Unavailable", "<html>busy</html>", "text/html"),
        "an empty object": http(status, "{}"),
        "a list": http(status, "[]"),
        "null": http(status, "null"),
        "bytes of no alphabet": http(status, b"\xff\xfe\xfa", "application/json; charset=utf-8"),
        "a truncated body": f'HTTP/1.1 {status}\r\nContent-Length: 500\r\n\r\n{{"sid": "SM'.encode(),
        "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
        "nothing": b"",
    }


ODD_ANSWERS = unreadable("201 Created") | {
    "a proxy's page with 404": http("404 Not Found", "<html>where?</html>", "text/html"),
    "a redirect": http("302 Found", ""),
    "20500 with 500": http("500 Internal Server Error", '{"code": 20500, "message": "oops", "status": 500}'),
}
ODD_LISTS = unreadable("200 OK") | {
    "wrong credentials": http("401 Unauthorized", '{"code": 20003, "message": "Authenticate", "status": 401}'),
}


@pytest.mark.parametrize("answer", ODD_ANSWERS.values(), ids=ODD_ANSWERS)
async def test_an_answer_that_cannot_be_read_is_unknown(answer: bytes) -> None:
    async with raw_provider(saying(answer)) as url:
        outcome = await send(url)

    assert isinstance(outcome, Unknown)


async def test_silence_is_unknown_after_the_timeout() -> None:
    async def hold(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await reader.read()  # until the client closes the connection

    async with raw_provider(hold) as url:
        outcome = await send(url, timeout=2.0)

    assert isinstance(outcome, Unknown)


# Queries


async def test_a_message_is_found_by_its_reference_among_all_to_the_phone(sms: Address) -> None:
    async with client(sms.url) as twilio:
        sent = {}
        for reference in ("#AAAAAAAA", "#BBBBBBBB", "#CCCCCCCC"):
            body = f"Ada is in labour. {reference}"
            sent[reference] = await twilio.send(to=PHONE, body=body, status_callback=NOWHERE)

        assert Accepted(await twilio.find(to=PHONE, reference="#BBBBBBBB") or "") == sent["#BBBBBBBB"]
        assert await twilio.find(to=PHONE, reference="#DDDDDDDD") is None
        assert await twilio.find(to="+12125550123", reference="#BBBBBBBB") is None


async def test_a_message_that_still_waits_at_the_provider_is_found(tmp_path: Path) -> None:
    """The provider sends about one segment a second, so a message may be queued for hours and has no date sent until then."""
    async with running(tmp_path / "sms", auth_token=TOKEN, pace=3600) as sms, client(sms.url) as twilio:
        sent = await twilio.send(to=PHONE, body="Ada is in labour. #AAAAAAAA", status_callback=NOWHERE)

        assert isinstance(sent, Accepted)
        assert await twilio.find(to=PHONE, reference="#AAAAAAAA") == sent.sid


@pytest.mark.parametrize("answer", ODD_LISTS.values(), ids=ODD_LISTS)
async def test_a_query_without_a_readable_answer_raises_and_never_means_absent(answer: bytes) -> None:
    async with raw_provider(saying(answer)) as url, client(url) as twilio:
        with pytest.raises(ProviderSilent):
            await twilio.find(to=PHONE, reference="#AAAAAAAA")


@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_a_message_that_will_never_arrive_is_not_found(status: str) -> None:
    page = f'{{"messages": [{{"sid": "SM1", "status": "{status}", "body": "Hello #AAAAAAAA"}}], "next_page_uri": null}}'
    async with raw_provider(saying(http("200 OK", page))) as url, client(url) as twilio:
        assert await twilio.find(to=PHONE, reference="#AAAAAAAA") is None

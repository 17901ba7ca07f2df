"""Sending an SMS through Twilio, and asking what became of one. Every way a call can end is a value, so none is forgotten.

Twilio knows no idempotency key. Whether a call that did not answer created a message, only asking can tell; so what matters
here is to say "unknown" whenever it is, and never to try twice behind the caller's back: the client's own retries stay off.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp
from twilio.base.exceptions import TwilioRestException
from twilio.http.async_http_client import AsyncTwilioHttpClient
from twilio.rest import Client

# Permanent, with a reason that a person understands.
_REFUSALS = {
    21211: "the phone number does not exist",
    21212: "the sender number is not valid",
    21408: "messages to this country are not enabled",
    21606: "the sender number cannot send messages",
    21610: "the person has opted out of messages",
    21612: "this number cannot be reached from our sender",
    21614: "the number is not a mobile phone",
    21635: "the number is a landline",
}
OPTED_OUT = 21610
_QUEUE_FULL = 21611


@dataclass(frozen=True, slots=True)
class Accepted:
    sid: str


@dataclass(frozen=True, slots=True)
class Refused:
    """For good: the same message will never go through."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class NotSent:
    """Surely nothing was created. `retry_in` seconds at least."""

    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """Surely nothing was created, and nothing will be until a person mends our credentials."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may have been created, or not, or it may be later."""

    reason: str


SendOutcome = Accepted | Refused | NotSent | Misconfigured | Unknown


class ProviderSilent(Exception):
    """Asking failed; nothing is known that was not known before."""


class _Session:
    """What the client sends its requests with. The client ignores the timeout it is given, so every request gets ours here:
    half of it to connect, because a connection that was never made is known to have sent nothing.
    """

    def __init__(self, timeout: float) -> None:
        self._session = aiohttp.ClientSession()
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=timeout / 2)

    async def request(self, **arguments: Any) -> aiohttp.ClientResponse:
        return await self._session.request(**{**arguments, "timeout": self._timeout})

    async def close(self) -> None:
        await self._session.close()


class Twilio:
    """`timeout` in seconds covers a whole call. Create it inside the running event loop, close it at the end."""

    def __init__(self, *, account_sid: str, auth_token: str, sender: str, base_url: str, timeout: float) -> None:
        self._sender, self._timeout = sender, timeout
        self._http = AsyncTwilioHttpClient(pool_connections=False)
        self._http.session = _Session(timeout)
        self._client = Client(account_sid, auth_token, http_client=self._http)
        if base_url:
            self._client.api.base_url = base_url

    async def close(self) -> None:
        await self._http.close()

    async def send(self, *, to: str, body: str, status_callback: str) -> SendOutcome:
        try:
            async with asyncio.timeout(self._timeout):
                message = await self._client.messages.create_async(
                    to=to, from_=self._sender, body=body, status_callback=status_callback
                )
        except TwilioRestException as error:
            return _classify(error)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            # Refused, no such host, no route, no answer to the knock: no byte of the request left.
            return NotSent("the provider could not be reached", 1.0)
        except Exception as error:  # whatever else ended it, and be it our reading of a strange answer: we called
            return Unknown(f"no readable answer ({type(error).__name__})")
        if not message.sid:
            return Unknown("an answer without a message id")
        return Accepted(message.sid)

    async def find(self, *, to: str, reference: str) -> str | None:
        """The sid of a message to this phone with this reference; None if the provider shows none at this moment.

        Failed and canceled messages do not count: they did not and will not arrive. The provider could filter by date sent,
        but a message in its queue has none, maybe for hours; so all to this phone are looked at and the reference decides.
        """
        try:
            async with asyncio.timeout(self._timeout):
                async for message in await self._client.messages.stream_async(to=to, page_size=1000):
                    if reference in (message.body or "") and message.status not in ("failed", "canceled"):
                        return str(message.sid)
        except Exception as error:  # whatever it was: an answer that we cannot read is none
            raise ProviderSilent(type(error).__name__) from None
        return None


def _classify(error: TwilioRestException) -> SendOutcome:
    """21xxx is about the message, 20xxx about us. Anything else is not Twilio's own answer, and may hide one."""
    code = error.code or 0
    if code == _QUEUE_FULL:  # before the others: it comes with 429 too
        return NotSent("the provider's queue for our sender is full", 120.0)
    if error.status == 429:
        return NotSent("the provider asks us to slow down", 1.0)
    if error.status == 401 or (error.status < 500 and 20000 <= code < 21000):
        return Misconfigured(f"the provider does not accept our account (error {code})")
    if error.status < 500 and 21000 <= code < 22000:
        return Refused(code, _REFUSALS.get(code, f"the provider refused it (error {code})"))
    return Unknown(f"the provider answered {error.status}")

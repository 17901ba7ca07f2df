"""Send an SMS through Twilio, and look one up. Every way in which a call can end is a value.

Twilio has no idempotency keys. If a call ends without an answer, only a query can tell whether it created a message. So every
outcome that is not certain is `Unknown`, and the client's own retries stay off: a retry could send the message twice.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp
from twilio.base.exceptions import TwilioRestException
from twilio.http.async_http_client import AsyncTwilioHttpClient
from twilio.rest import Client

from notification.domain.errors import ProviderSilent

# Permanent refusals, with a reason that a person understands.
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
COUNTRY_NOT_ENABLED = 21408
OPTED_OUT = 21610
_QUEUE_FULL = 21611


@dataclass(frozen=True, slots=True)
class Accepted:
    sid: str


@dataclass(frozen=True, slots=True)
class PermanentlyRefused:
    """The same message will never be accepted."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class NotSent:
    """Nothing was created. Wait at least `retry_in` seconds before the next attempt."""

    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """Nothing was created, and nothing will be until an operator corrects the credentials."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The message may exist, may not exist, or may be created later."""

    reason: str


SendOutcome = Accepted | PermanentlyRefused | NotSent | Misconfigured | Unknown


class _Session:
    """Sets the timeout of every request, because Twilio's client ignores the one that it is given.

    Half of the timeout is for connecting: if no connection was made, nothing was sent, and the outcome is certain.
    """

    def __init__(self, timeout: float) -> None:
        self._session = aiohttp.ClientSession()
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=timeout / 2)

    async def request(self, **arguments: Any) -> aiohttp.ClientResponse:
        return await self._session.request(**{**arguments, "timeout": self._timeout})

    async def close(self) -> None:
        await self._session.close()


class Twilio:
    """`timeout`, in seconds, covers a whole call. Create the client inside the running event loop and close it at the end."""

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
            # Connection refused, unknown host, no route, or no connection in time: no byte of the request was sent.
            return NotSent("the provider could not be reached", 1.0)
        except (
            Exception
        ) as error:  # any other failure, including an unreadable response: the request may have been processed
            return Unknown(f"no readable answer ({type(error).__name__})")
        if not message.sid:
            return Unknown("an answer without a message id")
        return Accepted(message.sid)

    async def find(self, *, to: str, reference: str) -> str | None:
        """The sid of a message to this phone with this reference, or None if the provider lists none at this moment.

        Leaves out failed and canceled messages, which never arrive. Does not filter by date sent: a message in the provider's
        queue has none, for hours if need be. Raises ProviderSilent if there is no readable answer.
        """
        try:
            async with asyncio.timeout(self._timeout):
                async for message in await self._client.messages.stream_async(to=to, page_size=1000):
                    if reference in (message.body or "") and message.status not in ("failed", "canceled"):
                        return str(message.sid)
        except Exception as error:  # an answer that cannot be read is no proof of absence
            raise ProviderSilent(type(error).__name__) from None
        return None


def _classify(error: TwilioRestException) -> SendOutcome:
    """21xxx is about the message, 20xxx about the account. Any other answer may come from a proxy and proves nothing."""
    code = error.code or 0
    if code == _QUEUE_FULL:  # first, because it comes with status 429 too
        return NotSent("the provider's queue for our sender is full", 120.0)
    if error.status == 429:
        return NotSent("the provider asks us to slow down", 1.0)
    if error.status == 401 or (error.status < 500 and 20000 <= code < 21000):
        return Misconfigured(f"the provider does not accept our account (error {code})")
    if error.status < 500 and 21000 <= code < 22000:
        return PermanentlyRefused(code, _REFUSALS.get(code, f"the provider refused it (error {code})"))
    return Unknown(f"the provider answered {error.status}")

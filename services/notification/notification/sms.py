"""Sending an SMS through Twilio, and asking what became of one. Every way a call can end is a value, so none is forgotten.

Twilio knows no idempotency key. Whether a call that did not answer created a message, only asking can tell; so what matters
here is to say "unknown" whenever it is, and never to try twice behind the caller's back: the client's own retries stay off.
"""

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime, timedelta

import aiohttp
from twilio.base.exceptions import TwilioException, TwilioRestException
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


class Twilio:
    """`timeout` in seconds covers a whole call; it is ours, because the client ignores the one it is given. Create it inside
    the running event loop, close it at the end.
    """

    def __init__(self, *, account_sid: str, auth_token: str, sender: str, base_url: str, timeout: float) -> None:
        self._sender, self._timeout = sender, timeout
        self._http = AsyncTwilioHttpClient()
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
        except aiohttp.ClientConnectorError:  # refused, no such host, no route: no byte of the request left
            return NotSent("the provider could not be reached", 1.0)
        except (TwilioException, aiohttp.ClientError, OSError, TimeoutError, json.JSONDecodeError) as error:
            return Unknown(f"no readable answer ({type(error).__name__})")
        if not message.sid:
            return Unknown("an answer without a message id")
        return Accepted(message.sid)

    async def find(self, *, to: str, reference: str, since: datetime) -> str | None:
        """The sid of a message to this phone with this reference; None if the provider shows none at this moment.

        Failed and canceled messages do not count: they did not and will not arrive. The provider filters by day only and our
        clocks may differ, so it is asked from the day before and the reference decides.
        """
        try:
            async with asyncio.timeout(self._timeout):
                stream = await self._client.messages.stream_async(
                    to=to, date_sent_after=since - timedelta(days=1), page_size=200
                )
                async for message in stream:
                    if reference in (message.body or "") and message.status not in ("failed", "canceled"):
                        return str(message.sid)
        except (TwilioException, aiohttp.ClientError, OSError, TimeoutError, json.JSONDecodeError) as error:
            raise ProviderSilent(type(error).__name__) from None
        return None


def _classify(error: TwilioRestException) -> SendOutcome:
    """21xxx is about the message, 20xxx about us. Anything else is not Twilio's own answer, and may hide one."""
    code = error.code or 0
    if error.status == 429:
        return NotSent("the provider asks us to slow down", 1.0)
    if error.status == 401 or (error.status < 500 and 20000 <= code < 21000):
        return Misconfigured(f"the provider does not accept our account (error {code})")
    if code == _QUEUE_FULL:
        return NotSent("the provider's queue for our sender is full", 120.0)
    if error.status < 500 and 21000 <= code < 22000:
        return Refused(code, _REFUSALS.get(code, f"the provider refused it (error {code})"))
    return Unknown(f"the provider answered {error.status}")

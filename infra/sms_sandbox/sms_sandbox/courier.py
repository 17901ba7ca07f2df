"""Delivers webhooks: status callbacks and inbound texts, signed as Twilio signs them.

Webhooks wait in the store until they are answered or given up, so a restart loses none. Those of one message are delivered
one after the other, in order; those of different messages side by side.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress

import httpx

from sms_sandbox.message import Message
from sms_sandbox.store import Callback, Store

AT_ONCE = 32
TIMEOUT_SECONDS = 15.0  # Twilio's own

log = logging.getLogger(__name__)


def sign(token: str, url: str, parameters: Mapping[str, str]) -> str:
    """The value of X-Twilio-Signature for a form that is posted to `url`, query included."""
    text = url + "".join(name + parameters[name] for name in sorted(parameters))
    return base64.b64encode(hmac.new(token.encode(), text.encode(), hashlib.sha1).digest()).decode()


class Courier:
    def __init__(self, store: Store, *, auth_token: str | None, retries: int, pace: float) -> None:
        self.store = store
        self.auth_token = auth_token
        self.retries = retries
        self.pace = pace
        self.wake = asyncio.Event()
        self.under_way: set[str] = set()

    def report_status(self, message: Message, status: str, now: float) -> None:
        parameters = {"MessageStatus": status, "SmsStatus": status}
        if message.sender:
            parameters["From"] = message.sender
        if message.service_sid:
            parameters["MessagingServiceSid"] = message.service_sid
        if message.error_code and status == message.status:
            parameters["ErrorCode"] = str(message.error_code)
        self._add(message, message.callback_url or "", parameters, now)

    def report_inbound(self, message: Message, url: str, opt_out_type: str | None) -> None:
        parameters = {
            "Body": message.body,
            "From": message.sender or "",
            "NumMedia": "0",
            "NumSegments": str(message.segments),
            "SmsMessageSid": message.sid,
            "SmsStatus": "received",
        }
        if opt_out_type:
            parameters["OptOutType"] = opt_out_type
        self._add(message, url, parameters, message.created_at)

    def _add(self, message: Message, url: str, parameters: dict[str, str], now: float) -> None:
        parameters |= {
            "AccountSid": message.account_sid,
            "ApiVersion": "2010-04-01",
            "MessageSid": message.sid,
            "SmsSid": message.sid,
            "To": message.recipient,
        }
        self.store.add_callback(message.sid, message.account_sid, url, json.dumps(parameters), now)

    async def run(self) -> None:
        # A proxy named in the environment must not get calls to local addresses.
        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client, asyncio.TaskGroup() as tasks:
            while True:
                self.wake.clear()
                pause = self._start_due(client, tasks)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):  # wait_for would lose a cancellation that comes with the wake-up
                        await self.wake.wait()

    def _start_due(self, client: httpx.AsyncClient, tasks: asyncio.TaskGroup) -> float | None:
        """Start the callbacks that are due. Returns the seconds until the next is due, or None if a wake-up will come first."""
        now = time.time()
        for callback in self.store.waiting_callbacks(limit=2 * AT_ONCE):  # up to AT_ONCE of them are under way already
            if len(self.under_way) >= AT_ONCE:
                return None
            if callback.sid in self.under_way:
                continue
            if callback.due_at > now:
                return callback.due_at - now
            self.under_way.add(callback.sid)
            tasks.create_task(self._deliver(client, callback))
        return None

    async def _deliver(self, client: httpx.AsyncClient, callback: Callback) -> None:
        problem = await self._post(client, callback)
        if problem is None:
            self.store.remove_callback(callback.position)
        elif callback.attempts < self.retries:
            self.store.postpone_callback(callback.position, time.time() + self.pace * 2**callback.attempts)
        else:
            fields = {"sid": callback.sid, "attempts": callback.attempts + 1, "problem": problem}
            log.warning("webhook given up", extra=fields)
            self.store.remove_callback(callback.position)
        self.under_way.discard(callback.sid)
        self.wake.set()

    async def _post(self, client: httpx.AsyncClient, callback: Callback) -> str | None:
        """Send a webhook; None if it was answered, else the error. A 4xx counts as answered: a retry would not change it."""
        parameters = json.loads(callback.parameters)
        token = self.auth_token or self.store.token_of(callback.account_sid) or ""
        headers = {
            "X-Twilio-Signature": sign(token, callback.url, parameters),
            "I-Twilio-Idempotency-Token": f"{callback.sid}-{callback.position}",
            "User-Agent": "TwilioProxy/1.1",
        }
        try:
            response = await client.post(callback.url, data=parameters, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return type(error).__name__
        return f"status {response.status_code}" if response.status_code >= 500 else None

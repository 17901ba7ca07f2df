"""The sandbox as a whole: its settings and its parts, wired by hand."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from fern.sms.carrier import Carrier
from fern.sms.courier import Courier
from fern.sms.events import Feed
from fern.sms.faults import Faults
from fern.sms.store import Store


@dataclass(frozen=True, slots=True)
class Settings:
    """How the sandbox behaves.

    auth_token        the one token that is accepted and signs webhooks; None accepts any, and signs with the account's last
    pace              seconds between queued, sending, sent and delivered, and before the first retry of a callback
    callback_retries  how often a webhook that met no answer or a 5xx is tried again (Twilio's own default is 1)
    inbound_url       where replies from phones are posted; None keeps them on the page
    """

    data_dir: Path
    auth_token: str | None = None
    pace: float = 0.4
    callback_retries: int = 1
    inbound_url: str | None = None


class Sandbox:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.data_dir)
        self.feed = Feed()
        self.faults = Faults(self.store, changed=lambda: self.feed.publish("faults"))
        self.courier = Courier(
            self.store, auth_token=settings.auth_token, retries=settings.callback_retries, pace=settings.pace
        )
        self.carrier = Carrier(self.store, self.faults, self.courier, self.feed, pace=settings.pace)

    async def run(self) -> None:
        """Move messages and deliver webhooks until cancelled; what is under way is picked up again by the next start."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.carrier.run())
            tasks.create_task(self.courier.run())

    def close(self) -> None:
        self.store.close()

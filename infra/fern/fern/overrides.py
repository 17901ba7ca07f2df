"""What `fern topology set`, `fern scale` and `fern consent` changed on this machine. Kept in FERN_HOME until `fern reset`.

FERN_DELIVERY  replaces the stored deliveries, as `notification=exactly-once,labour=pull`: for the topology job in a container,
               which does not see FERN_HOME
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

from fern.settings import Settings


@dataclass(frozen=True)
class Overrides:
    """`delivery` is by consumer and `replicas` by process. A consumer that is missing has its declared delivery; a process that
    is missing has one replica.

    `consent` is the value of SMS_CONSENT.
    """

    delivery: dict[str, str] = field(default_factory=dict)
    replicas: dict[str, int] = field(default_factory=dict)
    consent: str = "assumed"

    @classmethod
    def load(cls, settings: Settings) -> "Overrides":
        stored = cls()
        with suppress(OSError, ValueError, TypeError):
            stored = cls(**json.loads(settings.overrides.read_text()))
        if given := os.environ.get("FERN_DELIVERY"):
            entries = (entry.partition("=") for entry in given.split(","))
            return replace(stored, delivery={consumer: delivery for consumer, _, delivery in entries})
        return stored

    def environment(self) -> dict[str, str]:
        """The variables of the processes that handle events and replies, beside `Settings.environment`."""
        return {"SMS_CONSENT": self.consent}

    def save(self, settings: Settings) -> None:
        """Replace the file atomically: the console may read it at any time."""
        settings.home.mkdir(parents=True, exist_ok=True)
        written = settings.overrides.with_suffix(".new")
        written.write_text(json.dumps(asdict(self)))
        written.replace(settings.overrides)

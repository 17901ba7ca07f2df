"""A text message, as Twilio's resource and as the sandbox's own view; and the number of its segments."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime

from sms_sandbox.errors import MEANINGS

LATE = "late"  # not a status of Twilio's: the fault created-late hides the message until it is created
FINAL = frozenset({"delivered", "undelivered"})
NEXT_STATUS = {"queued": "sending", "accepted": "sending", "sending": "sent", "sent": "delivered"}

GSM_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_EXTENDED = frozenset("\f^{}\\[~]|€")  # each is sent as an escape and a character


@dataclass(frozen=True, slots=True)
class Message:
    """Times are seconds since the epoch. `step_at` is when the carrier moves it on; None once it is final."""

    sid: str
    account_sid: str
    recipient: str
    sender: str | None
    service_sid: str | None
    body: str
    segments: int
    direction: str
    status: str
    created_at: float
    updated_at: float
    callback_url: str | None = None
    step_at: float | None = None
    list_lag: float = 0.0
    reordered: bool = False
    sent_at: float | None = None
    error_code: int | None = None

    @property
    def first_status(self) -> str:
        return "accepted" if self.service_sid else "queued"

    @property
    def uri(self) -> str:
        return f"/2010-04-01/Accounts/{self.account_sid}/Messages/{self.sid}.json"

    def as_twilio(self) -> dict[str, object]:
        """Counts are strings and times have whole seconds, as Twilio has them. The status callback is not part of it."""
        return {
            "account_sid": self.account_sid,
            "api_version": "2010-04-01",
            "body": self.body,
            "date_created": _rfc2822(self.created_at),
            "date_sent": _rfc2822(self.sent_at),
            "date_updated": _rfc2822(self.updated_at),
            "direction": self.direction,
            "error_code": self.error_code,
            "error_message": self.error_message,
            "from": self.sender,
            "messaging_service_sid": self.service_sid,
            "num_media": "0",
            "num_segments": "0" if self.status == "accepted" else str(self.segments),
            "price": None,
            "price_unit": "USD",
            "sid": self.sid,
            "status": self.status,
            "subresource_uris": {"media": self.uri.replace(".json", "/Media.json")},
            "to": self.recipient,
            "uri": self.uri,
        }

    def as_seen(self) -> dict[str, object]:
        """The sandbox's view, for people and tests: it also shows what faults hide from the API."""
        return {
            "sid": self.sid,
            "to": self.recipient,
            "from": self.sender or self.service_sid,
            "body": self.body,
            "segments": self.segments,
            "direction": self.direction,
            "status": self.status,
            "error_code": self.error_code,
            "error_message": self.error_message,
            "created_at": _rfc3339(self.created_at),
            "updated_at": _rfc3339(self.updated_at),
        }

    @property
    def error_message(self) -> str | None:
        return MEANINGS[self.error_code] if self.error_code else None


def _rfc2822(seconds: float | None) -> str | None:
    return None if seconds is None else format_datetime(datetime.fromtimestamp(int(seconds), UTC))


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def count_segments(text: str) -> int:
    """160 characters in the GSM alphabet or 70 in UCS-2; fewer per part once it is split."""
    if all(c in GSM_BASIC or c in GSM_EXTENDED for c in text):
        return _parts((2 if c in GSM_EXTENDED else 1 for c in text), single=160, split=153)
    return _parts((2 if ord(c) > 0xFFFF else 1 for c in text), single=70, split=67)


def _parts(widths: Iterable[int], *, single: int, split: int) -> int:
    """A character of width two never straddles two parts, so the parts are packed one after the other."""
    total, parts, used = 0, 1, 0
    for width in widths:
        total += width
        if used + width > split:
            parts, used = parts + 1, 0
        used += width
    return 1 if total <= single else parts

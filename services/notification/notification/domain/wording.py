"""The texts of the messages. Each begins with our name, says how to stop, and ends with a reference.

The reference (`#` and 8 letters or digits, made from the notification's id) identifies a message in doubt at the provider: the
text is the only field chosen by us that the provider's list returns.

A text in the GSM-7 alphabet has 160 characters a segment. One character outside the alphabet makes all of it UCS-2, with 70. So
a name is written in GSM-7 if all of it can be ("Zoë" becomes "Zoe", "Zoë さくら" stays), without emoji, and cut if it is long.

What the mother writes herself is in quotation marks: a reader can tell it from what we say. Double quotation marks of her own
become single ones, so that her text cannot end ours and go on in our name.
"""

import unicodedata
from typing import NamedTuple
from uuid import UUID

from notification.domain.notification import CONSENT_REQUESTED
from servicekit.gsm7 import as_gsm_7, is_gsm_7, places, segments

NAME_LENGTH = 30  # places; a few characters take two
FALLBACK_NAME = "Someone you love"  # if no character of a name can be written

# A space and the reference follow each of them.
TEMPLATES = {
    CONSENT_REQUESTED: (
        "FernLabour: {mother} would like to text you when her baby is born. Reply YES to agree, STOP to refuse."
    ),
    "labour.begun": ("FernLabour: {mother} is in labour. We will tell you when the baby is here. Reply STOP to stop."),
    "labour.announced": 'FernLabour: {mother} says: "{text}" Reply STOP to stop.',
    "labour.completed": "FernLabour: The baby is here! {mother} has given birth{baby}. Reply STOP to stop.",
}

# Double quotation marks, and characters that look like one or become one in GSM-7
_QUOTATION_MARKS = str.maketrans(
    dict.fromkeys('"\u02ba\u02ee\u201c\u201d\u201e\u201f\u2033\u2036\u275d\u275e\u301d\u301e\u301f\uff02', "'")
)

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BASE_32 = [one + other for one in _LETTERS for other in _LETTERS]  # ten bits at a time


class Draft(NamedTuple):
    """A text without its reference, the same for all recipients. The segments count the reference too."""

    text: str
    segments: int

    def to(self, notification_id: UUID) -> str:
        return f"{self.text} {reference(notification_id)}"


def draft(event_type: str, *, mother_name: str, text: str = "", baby_name: str | None = None) -> Draft:
    """`text` is the text of an announcement. It is written in GSM-7 if all of it can be, and otherwise left as it is.

    A name of the baby is left out if no character of it can be written.
    """
    baby = plain_name(baby_name, fallback="") if baby_name else ""
    written = TEMPLATES[event_type].format(
        mother=plain_name(mother_name),
        text=as_gsm_7(text.translate(_QUOTATION_MARKS)),
        baby=f" to {baby}" if baby else "",
    )
    return Draft(written, segments(f"{written} {_ANY_REFERENCE}"))


def write(event_type: str, *, mother_name: str, notification_id: UUID, text: str = "") -> str:
    return draft(event_type, mother_name=mother_name, text=text).to(notification_id)


def reference(notification_id: UUID) -> str:
    """The last 40 bits of the UUIDv7, which are random, in base32. It must be unique only among the messages to one phone."""
    bits = notification_id.int
    first, second = _BASE_32[bits >> 30 & 1023], _BASE_32[bits >> 20 & 1023]
    return f"#{first}{second}{_BASE_32[bits >> 10 & 1023]}{_BASE_32[bits & 1023]}"


_ANY_REFERENCE = reference(UUID(int=0))  # all have the same length and alphabet


def plain_name(name: str, fallback: str = FALLBACK_NAME) -> str:
    shown = " ".join(name.translate(_QUOTATION_MARKS).split())
    if not is_gsm_7(shown):  # whose characters are neither ornaments nor have a plainer form
        unadorned = "".join(character for character in shown if not _is_ornament(character))
        shown = " ".join(as_gsm_7(unicodedata.normalize("NFC", unadorned)).split())
    if places(shown) > NAME_LENGTH:
        shown = shown[: NAME_LENGTH - 1]
        while places(shown) >= NAME_LENGTH:
            shown = shown[:-1]
        return shown.rstrip() + "."
    return shown or fallback


def _is_ornament(character: str) -> bool:
    """Emoji, their modifiers, and invisible characters."""
    if unicodedata.category(character) in ("So", "Sk", "Me", "Cs", "Co", "Cn", "Cc", "Cf"):
        return not is_gsm_7(character)
    return unicodedata.name(character, "").startswith("VARIATION SELECTOR")

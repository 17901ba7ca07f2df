"""The texts of the messages. Each ends with a reference.

The reference (`#` and 8 letters or digits, made from the notification's id) identifies a message in doubt at the provider: the
text is the only field chosen by us that the provider's list returns.

A text in the GSM-7 alphabet has 160 characters a segment. One character outside the alphabet makes all of it UCS-2, with 70. So
a name is written in GSM-7 if all of it can be ("Zoë" becomes "Zoe", "Zoë さくら" stays), without emoji, and cut if it is long.
"""

import re
import unicodedata
from typing import NamedTuple
from uuid import UUID

NAME_LENGTH = 30
FALLBACK_NAME = "Someone you love"  # if nothing of a name can be written

# A blank and the reference follow.
TEMPLATES = {
    "labour.begun": "{mother} is in labour. We will tell you when the baby is here.",
    "labour.announced": "{mother}: {text}",
    "labour.completed": "The baby is here! {mother} has given birth.",
}

GSM_7 = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_7_EXTENDED = frozenset("\f^{}\\[~]|€")  # each counts as two characters

# A search for one of these characters reads the whole text in one step, where a test of each would cost more than all the rest.
_NOT_GSM_7 = re.compile(f"[^{re.escape(''.join(GSM_7 | GSM_7_EXTENDED))}]")
_EXTENDED = re.compile(f"[{re.escape(''.join(GSM_7_EXTENDED))}]")
_BEYOND_UCS_2 = re.compile("[\U00010000-\U0010ffff]")

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BASE_32 = [one + other for one in _LETTERS for other in _LETTERS]  # ten bits at a time

# Letters without a decomposition into letter and accent, and typographic punctuation
_NEAREST = str.maketrans("łŁđĐı‘’“”–—", "lLdDi''\"\"--")  # noqa: RUF001


class Draft(NamedTuple):
    """A text without its reference: the same for everyone who gets it. The segments count the reference too."""

    text: str
    segments: int

    def to(self, notification_id: UUID) -> str:
        return f"{self.text} {reference(notification_id)}"


def draft(event_type: str, *, mother_name: str, text: str = "") -> Draft:
    """`text` is the text of an announcement. It is written in GSM-7 if all of it can be, and otherwise left as it is."""
    written = TEMPLATES[event_type].format(mother=plain_name(mother_name), text=_as_gsm_7(text))
    return Draft(written, segments(f"{written} {_ANY_REFERENCE}"))


def write(event_type: str, *, mother_name: str, notification_id: UUID, text: str = "") -> str:
    return draft(event_type, mother_name=mother_name, text=text).to(notification_id)


def reference(notification_id: UUID) -> str:
    """The last 40 bits of the UUIDv7, which are random, in base32. It must be unique only among the messages to one phone."""
    bits = notification_id.int
    first, second = _BASE_32[bits >> 30 & 1023], _BASE_32[bits >> 20 & 1023]
    return f"#{first}{second}{_BASE_32[bits >> 10 & 1023]}{_BASE_32[bits & 1023]}"


_ANY_REFERENCE = reference(UUID(int=0))  # all have the same length and alphabet


def plain_name(name: str) -> str:
    shown = " ".join(name.split())
    if not _is_gsm_7(shown):  # whose characters are neither ornaments nor have a plainer form
        unadorned = "".join(character for character in shown if not _is_ornament(character))
        shown = " ".join(_as_gsm_7(unicodedata.normalize("NFC", unadorned)).split())
    return shown[: NAME_LENGTH - 1].rstrip() + "." if len(shown) > NAME_LENGTH else shown or FALLBACK_NAME


def _as_gsm_7(text: str) -> str:
    if _is_gsm_7(text):
        return text
    plain = "".join(_plain(character) for character in text)
    return plain if _is_gsm_7(plain) else text


def _is_ornament(character: str) -> bool:
    """Emoji, their modifiers, and invisible characters."""
    if unicodedata.category(character) in ("So", "Sk", "Me", "Cs", "Co", "Cn", "Cc", "Cf"):
        return not _is_gsm_7(character)
    return unicodedata.name(character, "").startswith("VARIATION SELECTOR")


def _plain(character: str) -> str:
    """The character in GSM-7, or without its accents, which may still be outside GSM-7."""
    if _is_gsm_7(character):
        return character
    parts = unicodedata.normalize("NFKD", character.translate(_NEAREST))
    return "".join(part for part in parts if not unicodedata.combining(part))


def _is_gsm_7(text: str) -> bool:
    return _NOT_GSM_7.search(text) is None


def segments(text: str) -> int:
    """Counted as the provider counts: a character that takes two places is never split between segments."""
    gsm_7 = _is_gsm_7(text)
    single, joined = (160, 153) if gsm_7 else (70, 67)
    wide = _EXTENDED if gsm_7 else _BEYOND_UCS_2
    if 2 * len(text) <= single or len(text) + len(wide.findall(text)) <= single:
        return 1
    parts, used = 1, 0
    for character in text:
        width = 2 if wide.match(character) else 1
        if used + width > joined:
            parts, used = parts + 1, 0
        used += width
    return parts

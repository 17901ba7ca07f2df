"""The texts of the messages. Each ends with a reference.

The reference (`#` and 8 letters or digits, made from the notification's id) identifies a message in doubt at the provider: the
text is the only field chosen by us that the provider's list returns.

A text in the GSM-7 alphabet has 160 characters a segment. One character outside the alphabet makes all of it UCS-2, with 70. So
a name is written in GSM-7 if all of it can be ("Zoë" becomes "Zoe", "Zoë さくら" stays), without emoji, and cut if it is long.
"""

import base64
import unicodedata
from collections.abc import Iterable
from uuid import UUID

NAME_LENGTH = 30
FALLBACK_NAME = "Someone you love"  # if nothing of a name can be written

TEMPLATES = {
    "labour.begun": "{mother} is in labour. We will tell you when the baby is here. {reference}",
    "labour.announced": "{mother}: {text} {reference}",
    "labour.completed": "The baby is here! {mother} has given birth. {reference}",
}

GSM_7 = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_7_EXTENDED = frozenset("\f^{}\\[~]|€")  # each counts as two characters

# Letters without a decomposition into letter and accent, and typographic punctuation
_NEAREST = str.maketrans("łŁđĐı‘’“”–—", "lLdDi''\"\"--")  # noqa: RUF001


def write(event_type: str, *, mother_name: str, notification_id: UUID, text: str = "") -> str:
    """`text` is the text of an announcement. It is written in GSM-7 if all of it can be, and otherwise left as it is."""
    mother, said = plain_name(mother_name), _as_gsm_7(text)
    return TEMPLATES[event_type].format(mother=mother, text=said, reference=reference(notification_id))


def reference(notification_id: UUID) -> str:
    """Made from the last 40 bits of the UUIDv7, which are random. It must be unique only among the messages to one phone."""
    return "#" + base64.b32encode(notification_id.bytes[-5:]).decode()


def plain_name(name: str) -> str:
    unadorned = "".join(character for character in " ".join(name.split()) if not _is_ornament(character))
    shown = unicodedata.normalize("NFC", unadorned)
    words = " ".join(_as_gsm_7(shown).split())
    return words[: NAME_LENGTH - 1].rstrip() + "." if len(words) > NAME_LENGTH else words or FALLBACK_NAME


def _as_gsm_7(text: str) -> str:
    plain = "".join(_plain(character) for character in text)
    return plain if _is_gsm_7(plain) else text


def _is_ornament(character: str) -> bool:
    """Emoji, their modifiers, and invisible characters."""
    if unicodedata.category(character) in ("So", "Sk", "Me", "Cs", "Co", "Cn", "Cc", "Cf"):
        return character not in GSM_7 | GSM_7_EXTENDED
    return unicodedata.name(character, "").startswith("VARIATION SELECTOR")


def _plain(character: str) -> str:
    """The character in GSM-7, or without its accents, which may still be outside GSM-7."""
    if character in GSM_7 or character in GSM_7_EXTENDED:
        return character
    parts = unicodedata.normalize("NFKD", character.translate(_NEAREST))
    return "".join(part for part in parts if not unicodedata.combining(part))


def _is_gsm_7(characters: Iterable[str]) -> bool:
    return all(character in GSM_7 or character in GSM_7_EXTENDED for character in characters)


def segments(text: str) -> int:
    """Counted as the provider counts: a character that takes two places is never split between segments."""
    if _is_gsm_7(text):
        widths, single, joined = [2 if character in GSM_7_EXTENDED else 1 for character in text], 160, 153
    else:
        widths, single, joined = [2 if character > "\uffff" else 1 for character in text], 70, 67
    if sum(widths) <= single:
        return 1
    parts, used = 1, 0
    for width in widths:
        if used + width > joined:
            parts, used = parts + 1, 0
        used += width
    return parts

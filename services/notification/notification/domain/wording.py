"""The texts. Short, plain, and with a reference at the end.

The reference (`#` and 8 letters or digits, from the notification's id) is how a message is found again at the provider when we
cannot know whether it went out: the provider returns nothing else that we chose ourselves.

A text that fits the GSM-7 alphabet has 160 characters a segment; one character outside makes all of it UCS-2 with 70. So names
are written in GSM-7 where they can be without being spoiled ("Zoë" becomes "Zoe", "Zoë さくら" stays), emoji are left out, and
long names are cut.
"""

import base64
import unicodedata
from collections.abc import Iterable
from uuid import UUID

NAME_LENGTH = 30
NOBODY = "Someone you love"  # for a name of which nothing can be written

TEMPLATES = {
    "labour.begun": "{mother} is in labour. We will tell you when the baby is here. {reference}",
    "labour.announced": "{mother}: {text} {reference}",
    "labour.completed": "The baby is here! {mother} has given birth. {reference}",
}

GSM_7 = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_7_EXTENDED = frozenset("\f^{}\\[~]|€")  # two places each

# Letters that have no accent to take away, and punctuation as telephones write it
_NEAREST = str.maketrans("łŁđĐı‘’“”–—", "lLdDi''\"\"--")  # noqa: RUF001


def write(event_type: str, *, mother_name: str, notification_id: UUID, text: str = "") -> str:
    """`text` is what an announcement says; it stays as it was written where GSM-7 cannot say the same."""
    mother, said = plain_name(mother_name), _as_gsm_7(text)
    return TEMPLATES[event_type].format(mother=mother, text=said, reference=reference(notification_id))


def reference(notification_id: UUID) -> str:
    """From the random end of the UUIDv7. 40 bits, and only ever looked for among the messages to one phone."""
    return "#" + base64.b32encode(notification_id.bytes[-5:]).decode()


def plain_name(name: str) -> str:
    unadorned = "".join(character for character in " ".join(name.split()) if not _is_ornament(character))
    shown = unicodedata.normalize("NFC", unadorned)
    words = " ".join(_as_gsm_7(shown).split())
    return words[: NAME_LENGTH - 1].rstrip() + "." if len(words) > NAME_LENGTH else words or NOBODY


def _as_gsm_7(text: str) -> str:
    plain = "".join(_plain(character) for character in text)
    return plain if _is_gsm_7(plain) else text


def _is_ornament(character: str) -> bool:
    """Emoji with all that modifies them, and what cannot be seen."""
    if unicodedata.category(character) in ("So", "Sk", "Me", "Cs", "Co", "Cn", "Cc", "Cf"):
        return character not in GSM_7 | GSM_7_EXTENDED
    return unicodedata.name(character, "").startswith("VARIATION SELECTOR")


def _plain(character: str) -> str:
    """As GSM-7 can write it, or as near as taking accents away comes to that."""
    if character in GSM_7 or character in GSM_7_EXTENDED:
        return character
    parts = unicodedata.normalize("NFKD", character.translate(_NEAREST))
    return "".join(part for part in parts if not unicodedata.combining(part))


def _is_gsm_7(characters: Iterable[str]) -> bool:
    return all(character in GSM_7 or character in GSM_7_EXTENDED for character in characters)


def segments(text: str) -> int:
    """As the provider counts: a character of two places is never split, it goes whole into the next part."""
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

"""The texts. Short, plain, and with a reference at the end.

The reference (`#` and 8 letters or digits, from the notification's id) is how a message is found again at the provider when we
cannot know whether it went out: the provider returns nothing else that we chose ourselves.

A text that fits the GSM-7 alphabet has 160 characters a segment; one character outside makes all of it UCS-2 with 70. So names
are written in GSM-7 where they can be without being spoiled ("Zoë" becomes "Zoe", "さくら" stays), emoji are left out, and long
names are cut.
"""

import base64
import unicodedata
from uuid import UUID

NAME_LENGTH = 30

TEMPLATES = {
    "labour.begun": "{mother} is in labour. We will tell you when the baby is here. {reference}",
    "labour.completed": "The baby is here! {mother} has given birth. {reference}",
}

GSM_7 = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_7_EXTENDED = frozenset("\f^{}\\[~]|€")  # two places each


def write(event_type: str, *, mother_name: str, notification_id: UUID) -> str:
    return TEMPLATES[event_type].format(mother=plain_name(mother_name), reference=reference(notification_id))


def reference(notification_id: UUID) -> str:
    """From the random end of the UUIDv7. 40 bits, and only ever looked for among the messages to one phone."""
    return "#" + base64.b32encode(notification_id.bytes[-5:]).decode()


def plain_name(name: str) -> str:
    kept = "".join(_plain(character) for character in unicodedata.normalize("NFC", name))
    words = " ".join(kept.split())
    return words if len(words) <= NAME_LENGTH else words[: NAME_LENGTH - 1].rstrip() + "."


def _plain(character: str) -> str:
    if character in GSM_7 or character in GSM_7_EXTENDED:
        return character
    if unicodedata.category(character) in ("So", "Sk", "Cs", "Co", "Cn", "Cc", "Cf"):
        return " " if character.isspace() else ""
    bare = "".join(part for part in unicodedata.normalize("NFKD", character) if not unicodedata.combining(part))
    return bare if bare and all(part in GSM_7 for part in bare) else character


def segments(text: str) -> int:
    if all(character in GSM_7 or character in GSM_7_EXTENDED for character in text):
        length, single, joined = sum(2 if character in GSM_7_EXTENDED else 1 for character in text), 160, 153
    else:
        length, single, joined = len(text.encode("utf-16-be")) // 2, 70, 67
    return 1 if length <= single else -(-length // joined)

"""The alphabet of text messages, and how many segments a text has: the unit that a provider sends and charges.

A text in the GSM-7 alphabet has 160 characters a segment, or 153 if it has several. One character outside the alphabet makes
all of it UCS-2, with 70 or 67.
"""

import re
import unicodedata

GSM_7 = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_7_EXTENDED = frozenset("\f^{}\\[~]|€")  # each counts as two characters

# A search for one of these characters reads the whole text in one step, where a test of each would cost more than all the rest.
_NOT_GSM_7 = re.compile(f"[^{re.escape(''.join(GSM_7 | GSM_7_EXTENDED))}]")
_EXTENDED = re.compile(f"[{re.escape(''.join(GSM_7_EXTENDED))}]")
_BEYOND_UCS_2 = re.compile("[\U00010000-\U0010ffff]")

# Letters without a decomposition into letter and accent, and typographic punctuation
_NEAREST = str.maketrans("łŁđĐı‘’“”–—", "lLdDi''\"\"--")  # noqa: RUF001


def is_gsm_7(text: str) -> bool:
    return _NOT_GSM_7.search(text) is None


def as_gsm_7(text: str) -> str:
    """The text in GSM-7 if all of it can be written so, and otherwise as it is."""
    if is_gsm_7(text):
        return text
    plain = "".join(_plain(character) for character in text)
    return plain if is_gsm_7(plain) else text


def _plain(character: str) -> str:
    """The character in GSM-7, or without its accents, which may still be outside GSM-7."""
    if is_gsm_7(character):
        return character
    parts = unicodedata.normalize("NFKD", character.translate(_NEAREST))
    return "".join(part for part in parts if not unicodedata.combining(part))


def places(text: str) -> int:
    """The length of a text as it counts towards a segment: some characters take two places."""
    return len(text) + len((_EXTENDED if is_gsm_7(text) else _BEYOND_UCS_2).findall(text))


def segments(text: str) -> int:
    """Counted as the provider counts: a character that takes two places is never split between segments."""
    gsm_7 = is_gsm_7(text)
    single, joined = (160, 153) if gsm_7 else (70, 67)
    if 2 * len(text) <= single or places(text) <= single:
        return 1
    wide = _EXTENDED if gsm_7 else _BEYOND_UCS_2
    parts, used = 1, 0
    for character in text:
        width = 2 if wide.match(character) else 1
        if used + width > joined:
            parts, used = parts + 1, 0
        used += width
    return parts

"""How many segments a text costs: 160 characters in the GSM alphabet or 70 in UCS-2; fewer per part once it is split."""

from collections.abc import Iterable

GSM_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_EXTENDED = frozenset("\f^{}\\[~]|€")  # each is sent as an escape and a character


def count_segments(text: str) -> int:
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

"""Masks phone numbers in text that is stored, logged or published outside an event's payload."""

import re

_PHONE = re.compile(r"(?:\+|%2B)[1-9](?:[ ()\-.]?\d){6,14}", re.IGNORECASE)


def mask(text: str) -> str:
    if "+" in text or "%2" in text:  # a phone number has one of them, and most texts have neither
        return _PHONE.sub("[phone]", text)
    return text

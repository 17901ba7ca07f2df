"""Masks phone numbers in text that is stored, logged or published outside an event's payload."""

import re

_PHONE = re.compile(r"(?:\+|%2B)[1-9](?:[ ()\-.]?\d){6,14}", re.IGNORECASE)


def mask(text: str) -> str:
    return _PHONE.sub("[phone]", text)

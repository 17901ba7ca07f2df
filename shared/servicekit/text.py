"""Which characters a text from a caller may have: the one rule for bodies, parameters, stored headers and tokens.

No text may have a control character (Unicode category Cc) or half of a surrogate pair (Cs). PostgreSQL stores neither NUL nor a
surrogate, and the others change what a person sees on a screen, in a log line or in an SMS. Line feed, carriage return and tab
are allowed where the type of a field says that it may have several lines: `LINES`. Everything else is one line.

Two layers apply the rule. `forbidden_field` looks at every string of a JSON body and knows nothing of its type, so a new field
is covered without doing anything for it. The patterns are for the types of the fields: they add what a line may not have, and
they are part of the OpenAPI description.
"""

import re
from collections.abc import Iterator

_CONTROL = r"\x00-\x1f\x7f-\x9f"
_CONTROL_IN_LINES = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"

# Without `(?!\n)`, Python's `$` would also match before a line feed at the end.
LINE = rf"^[^{_CONTROL}]*$(?!\n)"
VISIBLE_LINE = rf"^[^{_CONTROL}]*[^\s{_CONTROL}][^{_CONTROL}]*$(?!\n)"
LINES = rf"^[^{_CONTROL_IN_LINES}]*$(?!\n)"

NAME = r"^[a-z-]{1,100}$(?!\n)"  # of a process

_MEANINGS = {
    LINE: "must be one line without control characters",
    VISIBLE_LINE: "must be one line without control characters, with at least one visible character",
    NAME: "must be 1 to 100 lower-case letters and hyphens",
    LINES: "must not have control characters other than line breaks and tabs",
}
FORBIDDEN = "has a control character or half of a surrogate pair, which no text may have; remove it"

_in_line = re.compile(rf"[{_CONTROL}\ud800-\udfff]").search
_anywhere = re.compile(rf"[{_CONTROL_IN_LINES}\ud800-\udfff]").search


def is_line(text: str) -> bool:
    """True if the text has none of the characters that one line may not have."""
    return _in_line(text) is None


def explain(message: str) -> str:
    """A message of msgspec, with what a pattern means in place of the pattern."""
    return next((meaning for pattern, meaning in _MEANINGS.items() if repr(pattern) in message), message)


def forbidden_field(data: object) -> str | None:
    """The field of a decoded JSON value, such as `message.data`, whose text breaks the rule for texts of several lines."""
    return next((path or "body" for path, text in _texts(data) if _anywhere(text)), None)


def _texts(data: object) -> Iterator[tuple[str, str]]:
    """Every string of a JSON value, with its path. The name of a field is a string of the object that has it."""
    pending = [("", data)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, list):
            pending += [(path, item) for item in value]
        elif isinstance(value, dict):
            for name, item in value.items():
                yield path, name
                pending.append((f"{path}.{name}" if path else name, item))

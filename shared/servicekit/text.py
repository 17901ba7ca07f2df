"""Which characters a text from a caller may have: the one rule for bodies, parameters, stored headers and tokens.

No text may have a control character (Unicode category Cc) or half of a surrogate pair (Cs). PostgreSQL stores neither NUL nor a
surrogate, and the others change what a person sees on a screen, in a log line or in an SMS. Line feed, carriage return and tab
are allowed where the type of a field says that it may have several lines: `LINES`. Everything else is one line.

Two layers apply the rule. `forbidden_field` looks at every string of a JSON body and knows nothing of its type, so a new field
is covered without doing anything for it. The patterns are for the types of the fields: they add what a line may not have, and
they are part of the OpenAPI description.

A third rule is for texts that other people are shown or sent, such as a name or an announcement: `problem_for_readers`. It
refuses links, since a stranger's text must not lead anywhere, and characters that make a text differ from what is seen. Of a name
`problem_with_name` refuses phone numbers, our own name and the signs of a sentence as well.
"""

import re
import unicodedata
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


# Soft hyphen, marks and overrides of the direction of writing, zero-width spaces, fillers, blanks, tags.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

# Invisible characters that belong to what is seen: how an emoji is drawn, a joiner in a family of emoji or inside a word of a
# script that needs one (Persian, Sinhala; never between Latin letters), and the tags in the flags of England, Scotland and Wales.
_BELONGING = re.compile(
    "(?<=\\S)[\ufe0e\ufe0f]|(?<=[^\0-\u024f\\s\u200c\u200d])[\u200c\u200d](?=[^\0-\u024f\\s\u200c\u200d])"
    "|(?<=\U0001f3f4)[\U000e0061-\U000e007a]{1,6}\U000e007f"
)

# A scheme; www; an address in numbers; and a full stop right before a word, as in every domain name. That needs no list of
# domains, which would be old tomorrow. A sentence that lacks the space after its full stop is refused as well, because phones
# make a link of "here.So". A number, an initial or an abbreviation passes: 3.30pm, J.R. Smith, e.g.
_LINK = re.compile(
    r"://|\bwww\.|\b\d{1,3}(?:\.\d{1,3}){3}\b|\w\s*\.[^\W\d_][\w-]|\w\s+\.\s+[^\W\d_][\w-]"
    r"|\w\u3002[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}",
    re.IGNORECASE,
)  # U+3002 ends a sentence in Japanese and Chinese, and is a full stop in a domain name
_NOT_SEEN_IN_A_DOMAIN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Mc", "Me", "Mn", "Sk", "So"})

MOST_DIGITS = 4  # in a name: the shortest numbers that a phone can call or text and that cost extra have five

OURS = "fernlabour"  # every text begins with our name

# The signs that begin speech or end a sentence, and characters that look like a colon.
_SPEECH = re.compile("[:!?\u02d0\u037e\u0589\u05c3\u061f\u2236\ua789]")
# A full stop before anything else, with the word before it.
_STOP = re.compile(r"(\w*)[^\w.\u06d4\u0964\u1362\u3002]*[.\u06d4\u0964\u1362\u3002]+(?=\s*\S)")
# What may have a full stop in a name, beside words of one or two letters such as initials, Dr. and St.
_ABBREVIATIONS = frozenset({"capt", "dra", "hon", "mlle", "mme", "mrs", "prof", "rev", "sgt", "sra", "srta", "ste"})

INVISIBLE = "has an invisible character, or one that changes the direction of writing; remove it"
LINK = "has a link, or what a phone would show as one; leave it out, and write a space after each full stop and none before"
OUR_NAME = "has our own name, which no other name may have; leave it out"
SENTENCE = "has a sign of a sentence (: ! ? or a full stop after a word), which a name may not have; leave it out"
PHONE_NUMBER = f"has a phone number, or more than {MOST_DIGITS} digits, which a name may not have; leave it out"


def problem_for_readers(text: str) -> str | None:
    """What is wrong with a text that other people are shown or sent; None if nothing is."""
    if not text.isascii():
        if _INVISIBLE.search(_BELONGING.sub("", text)):
            return INVISIBLE
        # As plain as a text message may become: accents, emoji and ornamental letters are lost when it is written in GSM-7.
        plain = unicodedata.normalize("NFKD", text)
        text = "".join(one for one in plain if unicodedata.category(one) not in _NOT_SEEN_IN_A_DOMAIN)
    return LINK if _LINK.search(text) else None


def problem_with_name(name: str) -> str | None:
    """As `problem_for_readers`, and for what makes a name more than a name: a phone number, our own name, or a sentence. A
    mother's name is in the question for consent, which people get who have not agreed to anything.
    """
    plain = unicodedata.normalize("NFKD", name)
    if sum(one.isdigit() for one in plain) > MOST_DIGITS:
        return PHONE_NUMBER
    if problem := problem_for_readers(name):
        return problem
    if OURS in "".join(one for one in plain if one.isalpha()).casefold():
        return OUR_NAME
    return SENTENCE if _SPEECH.search(plain) or any(map(_ends_a_sentence, _STOP.findall(plain))) else None


def _ends_a_sentence(word: str) -> bool:
    """Whether a full stop after this word ends a sentence, rather than an abbreviation."""
    return len(word) > 2 and word.casefold() not in _ABBREVIATIONS


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

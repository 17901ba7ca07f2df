"""Subscription filters: the documented language over message attributes.

    attributes:KEY                     the key is there
    attributes.KEY = "VALUE"           the key is there with this value
    attributes.KEY != "VALUE"          anything else, a missing key too
    hasPrefix(attributes.KEY, "VALUE")
    NOT x, -x, x AND y, x OR y, (x)    AND and OR do not mix without parentheses

A KEY of letters, digits, `_` and `-` may be bare; any other is a string literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pubsub_emulator.errors import invalid

MAX_FILTER_BYTES: Final = 256
Attributes = Mapping[str, str]
Test = Callable[[Attributes], bool]

_TOKEN: Final = re.compile(
    r"""\s*(?: (?P<string>"(?:[^"\\]|\\.)*") | (?P<symbol>!=|[=:.,()\-]) | (?P<word>[A-Za-z0-9_](?:[A-Za-z0-9_\-])*) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([0-7]{3})|(.))", re.DOTALL)
_NAMED_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Filter:
    matches: Test
    everything: bool = False
    """True for the empty filter, so that the hot path need not examine attributes at all."""

    @classmethod
    def parse(cls, text: str) -> Filter:
        if not text.strip():
            return cls(lambda attributes: True, everything=True)
        if len(text.encode()) > MAX_FILTER_BYTES:
            raise invalid(f"filter: longer than {MAX_FILTER_BYTES} bytes")
        return cls(_Parser(text).parse())


class _Parser:
    """Recursive descent; each method parses one rule and returns its test."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokenize(text))
        self._at = 0

    def parse(self) -> Test:
        test = self._expression()
        if self._peek():
            raise self._unexpected("the end, AND or OR")
        return test

    def _expression(self) -> Test:
        tests = [self._term()]
        operator = self._peek()
        if operator not in ("AND", "OR"):
            return tests[0]
        while self._accept(operator):
            tests.append(self._term())
        if self._peek() in ("AND", "OR"):
            raise invalid("filter: AND and OR must not be mixed without parentheses")
        every = all if operator == "AND" else any
        return lambda attributes: every(test(attributes) for test in tests)

    def _term(self) -> Test:
        if self._accept("NOT") or self._accept("-"):
            negated = self._term()
            return lambda attributes: not negated(attributes)
        if self._accept("("):
            inner = self._expression()
            self._expect(")")
            return inner
        if self._accept("hasPrefix"):
            return self._has_prefix()
        return self._comparison()

    def _has_prefix(self) -> Test:
        self._expect("(")
        self._expect("attributes")
        self._expect(".")
        key = self._key()
        self._expect(",")
        prefix = self._string()
        self._expect(")")
        return lambda attributes: key in attributes and attributes[key].startswith(prefix)

    def _comparison(self) -> Test:
        self._expect("attributes")
        if self._accept(":"):
            key = self._key()
            return lambda attributes: key in attributes
        self._expect(".")
        key = self._key()
        if self._accept("="):
            value = self._string()
            return lambda attributes: key in attributes and attributes[key] == value
        self._expect("!=")
        value = self._string()
        return lambda attributes: key not in attributes or attributes[key] != value

    def _key(self) -> str:
        token = self._peek()
        if token.startswith('"'):
            return self._string()
        if not token or not (token[0].isalnum() or token[0] == "_"):
            raise self._unexpected("an attribute key")
        self._at += 1
        return token

    def _string(self) -> str:
        token = self._peek()
        if not token.startswith('"'):
            raise self._unexpected("a string in double quotes")
        self._at += 1
        return _ESCAPE.sub(_unescape, token[1:-1])

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _accept(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._unexpected(repr(token))

    def _unexpected(self, wanted: str) -> Exception:
        return invalid(f"filter: expected {wanted}, found {self._peek() or 'the end'!r}")


def _tokenize(text: str) -> list[str]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise invalid(f"filter: cannot read {text[at : at + 20]!r}")
        tokens.append(match.group(match.lastgroup or 0))
        at = match.end()
    return tokens


def _unescape(match: re.Match[str]) -> str:
    short, long, byte, octal, other = match.groups()
    if digits := short or long or byte:
        code = int(digits, 16)
    elif octal:
        code = int(octal, 8)
    else:
        return _NAMED_ESCAPES.get(other, other)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise invalid(f"filter: {match.group()} is not a character")
    return chr(code)

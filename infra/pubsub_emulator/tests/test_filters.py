"""The filter language, against a reference that never sees its text."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_emulator.errors import CallRefused
from pubsub_emulator.filters import MAX_FILTER_BYTES, Filter

Expected = Callable[[Mapping[str, str]], bool]
Case = tuple[str, Expected]
"""A filter's text and what it means."""

BARE = st.sampled_from(["type", "a", "b-c", "_x", "k9"])
QUOTED = st.sampled_from(["dotted.key", "with space", 'with"quote', "ünï", "AND"])
VALUES = st.sampled_from(["", "a", "ab", "abc", "labour.begun", 'say "hi"', "back\\slash", "é\n"])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


KEYS = st.one_of(BARE.map(lambda key: (key, key)), QUOTED.map(lambda key: (_quoted(key), key)))


@st.composite
def _leaves(draw: st.DrawFn) -> Case:
    written, key = draw(KEYS)
    value = draw(VALUES)
    leaves: list[Case] = [
        (f"attributes:{written}", lambda a: key in a),
        (f"attributes.{written} = {_quoted(value)}", lambda a: a.get(key) == value),
        (f"attributes.{written}!={_quoted(value)}", lambda a: a.get(key) != value),
        (f"hasPrefix(attributes.{written}, {_quoted(value)})", lambda a: key in a and a[key].startswith(value)),
    ]
    return draw(st.sampled_from(leaves))


def _negated(case: Case) -> Case:
    text, expected = case
    return f"NOT ({text})", lambda a: not expected(a)


def _joined(operator: str, cases: list[Case]) -> Case:
    every = all if operator == "AND" else any
    return f" {operator} ".join(f"({text})" for text, _ in cases), lambda a: every(expected(a) for _, expected in cases)


CASES = st.recursive(
    _leaves(),
    lambda inner: st.one_of(
        inner.map(_negated),
        st.builds(_joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=5,
).filter(lambda case: len(case[0].encode()) <= MAX_FILTER_BYTES)
ATTRIBUTES = st.dictionaries(st.one_of(BARE, QUOTED), VALUES, max_size=5)


@given(CASES, ATTRIBUTES)
def test_a_filter_means_what_it_says(case: Case, attributes: dict[str, str]) -> None:
    text, expected = case

    assert Filter.parse(text).matches(attributes) is expected(attributes)


@given(st.text(alphabet='attributes.:="()ANDORNOT-hasPrefix, \\xu0\n', max_size=60) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(CallRefused):
        assert Filter.parse(text).matches({}) in (True, False)


def test_an_empty_filter_lets_everything_through() -> None:
    assert Filter.parse("  ").everything


@pytest.mark.parametrize(
    "text",
    [
        "attributes",
        "attributes.type",
        "attributes.type =",
        "attributes.type = begun",
        'attributes.type = "unclosed',
        'attributes:"a" attributes:"b"',
        "attributes:a AND attributes:b OR attributes:c",
        "(attributes:a",
        "attributes:a)",
        "NOT",
        'hasPrefix(attributes.a "x")',
        'hasSuffix(attributes.a, "x")',
        'data = "x"',
        f'attributes.a = "{"x" * 256}"',
    ],
)
def test_what_the_language_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(CallRefused):
        Filter.parse(text)


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("-attributes:a", {}),
        ("NOT attributes:a AND NOT attributes:b", {}),
        ("attributes:a AND attributes:b AND attributes:c", dict.fromkeys("abc", "")),
        (r'attributes.a = "\u00e9\x41\101\n"', {"a": "éAA\n"}),
        ('attributes.a != "x"', {}),
    ],
)
def test_the_finer_points(text: str, attributes: dict[str, str]) -> None:
    assert Filter.parse(text).matches(attributes)

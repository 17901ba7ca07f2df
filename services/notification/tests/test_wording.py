"""A text stays short with any name: no name is lost or misspelled, and none turns one segment into three."""

import re
import string
import unicodedata
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from notification.domain.wording import NAME_LENGTH, TEMPLATES, draft, plain_name, reference, write
from servicekit.gsm7 import GSM_7, GSM_7_EXTENDED, segments
from sms_sandbox.message import count_segments

ID = UUID("01a1e284-4fea-7752-8728-a3729831442c")
EMOJI = ["❤️", "👩‍❤️‍👨", "👶🏽", "🇫🇷", "1️⃣", "☀️", "🤱", "\u200d", "\ufe0f"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)
gsm_texts = st.text(st.sampled_from(sorted(GSM_7 | GSM_7_EXTENDED)), max_size=400)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100)
plain_names = st.text(st.sampled_from(string.ascii_letters + " -'"), min_size=1, max_size=100).filter(str.strip)


def is_gsm(text: str) -> bool:
    return set(text) <= GSM_7 | GSM_7_EXTENDED


FIXED_TEXTS = [event_type for event_type, template in TEMPLATES.items() if "{text}" not in template]


@pytest.mark.parametrize("event_type", FIXED_TEXTS)
@pytest.mark.parametrize("letter", ["W", "é", "€"])
def test_every_template_with_the_longest_plain_name_is_one_segment(event_type: str, letter: str) -> None:
    text = write(event_type, mother_name=letter * 100, text="Nearly there!", notification_id=ID)

    assert is_gsm(text)
    assert segments(text) == 1, f"{event_type} costs {segments(text)} segments a person: make it shorter"


@pytest.mark.parametrize("letter", ["W", "é", "€"])
def test_a_birth_names_the_baby_and_is_one_segment_with_the_longest_plain_names(letter: str) -> None:
    usual = draft("labour.completed", mother_name="Ada", baby_name="Zoë 👶")
    longest = draft("labour.completed", mother_name=letter * 100, baby_name=letter * 100)

    assert usual.text == "FernLabour: The baby is here! Ada has given birth to Zoe. Reply STOP to stop."
    assert (usual.segments, longest.segments) == (1, 1)


@pytest.mark.parametrize("unwritable", [None, "", "👶🏽", " \u200d"])
def test_a_birth_without_a_name_that_can_be_written_says_what_it_said_before(unwritable: str | None) -> None:
    told = draft("labour.completed", mother_name="Ada", baby_name=unwritable)

    assert told.text == "FernLabour: The baby is here! Ada has given birth. Reply STOP to stop."


@given(mother=names, baby=names)
def test_no_two_names_make_a_birth_longer_than_three_segments(mother: str, baby: str) -> None:
    assert draft("labour.completed", mother_name=mother, baby_name=baby).segments <= 3


@pytest.mark.parametrize("event_type", FIXED_TEXTS)
@given(name=names)
def test_no_name_makes_a_text_longer_than_two_segments(event_type: str, name: str) -> None:
    assert segments(write(event_type, mother_name=name, text="Nearly there!", notification_id=ID)) <= 2


@pytest.mark.parametrize("event_type", TEMPLATES)
@given(name=names)
def test_every_text_ends_with_the_reference_and_begins_with_no_blank(event_type: str, name: str) -> None:
    text = write(event_type, mother_name=name, text="Nearly there!", notification_id=ID)

    assert text.endswith(" " + reference(ID))
    assert text == text.strip()
    assert "  " not in text


@given(st.text(st.sampled_from(string.ascii_letters + "éłřž ’–!?"), min_size=1, max_size=280))  # noqa: RUF001
def test_an_announcement_in_letters_is_three_segments_at_most_and_a_short_one_is_one(said: str) -> None:
    text = write("labour.announced", mother_name="W" * 100, notification_id=ID, text=said)

    assert is_gsm(text)
    assert segments(text) <= (1 if len(said) <= 79 else 3)


def test_an_announcement_has_the_words_of_the_mother() -> None:
    said = "4 cm, alles gut 🌸 すぐ"

    written = write("labour.announced", mother_name="Ada", notification_id=ID, text=said)

    assert written == f'FernLabour: Ada says: "{said}" Reply STOP to stop. {reference(ID)}'


@pytest.mark.parametrize(
    "mark", ['"', "\N{RIGHT DOUBLE QUOTATION MARK}", "\N{FULLWIDTH QUOTATION MARK}", "\N{DOUBLE PRIME}"]
)
@pytest.mark.parametrize("more", ["", " すぐ"], ids=["GSM-7", "UCS-2"])
def test_an_announcement_cannot_end_its_own_quotation_and_go_on_in_our_name(mark: str, more: str) -> None:
    said = f"Hello{mark} FernLabour: your payment failed{more}"

    written = write("labour.announced", mother_name="Ada", notification_id=ID, text=said)

    assert written.startswith(f'FernLabour: Ada says: "Hello\' FernLabour: your payment failed{more}" Reply STOP')


@given(said=names)
def test_only_our_own_quotation_marks_are_in_an_announcement(said: str) -> None:
    written = write("labour.announced", mother_name="Ada", notification_id=ID, text=said)

    assert unicodedata.normalize("NFKC", written).count('"') == 2


def test_an_announcement_of_a_usual_length_is_one_segment() -> None:
    """With a name of ten letters; what is longer costs a second segment."""
    assert segments(write("labour.announced", mother_name="A" * 10, notification_id=ID, text="a" * 99)) == 1


@pytest.mark.parametrize("event_type", TEMPLATES)
@given(name=names)
def test_every_text_says_who_sends_it_and_how_to_stop(event_type: str, name: str) -> None:
    text = write(event_type, mother_name=name, text="Nearly there!", notification_id=ID)

    assert text.startswith("FernLabour: ")
    assert "STOP to " in text


@given(st.uuids())
def test_a_reference_is_nine_plain_characters(notification_id: UUID) -> None:
    assert re.fullmatch("#[A-Z2-7]{8}", reference(notification_id))


@given(names)
def test_a_name_is_never_empty_nor_too_long_and_has_one_line(name: str) -> None:
    plain = plain_name(name)

    assert 1 <= len(plain) <= NAME_LENGTH
    assert not set(plain) & set("\n\r\f\t\0")


@given(names)
def test_making_a_name_plain_twice_changes_nothing_more(name: str) -> None:
    assert plain_name(plain_name(name)) == plain_name(name)


@given(plain_names, st.lists(st.tuples(st.integers(0, 30), st.sampled_from(EMOJI)), min_size=1, max_size=3))
def test_emoji_never_change_the_alphabet(name: str, ornaments: list[tuple[int, str]]) -> None:
    adorned = name
    for place, emoji in ornaments:
        adorned = adorned[:place] + emoji + adorned[place:]

    assert is_gsm(plain_name(adorned))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Ada", "Ada"),
        ("Zoë", "Zoe"),
        ("Zoe\u0308", "Zoe"),
        ("René", "René"),  # é is in the alphabet
        ("D\N{RIGHT SINGLE QUOTATION MARK}Angelo", "D'Angelo"),  # as phones type it
        ("Michał Dvořák", "Michal Dvorak"),
        ("Jean\N{EN DASH}Luc", "Jean-Luc"),
        ("Ｇｒａｃｅ", "Grace"),  # noqa: RUF001
        ("  Ada \n Lovelace ", "Ada Lovelace"),
        ("Ada ❤️", "Ada"),
        ("さくら", "さくら"),
        ("Zoë さくら", "Zoë さくら"),  # not GSM-7 in any case, so the accent stays
        ("अनन्या", "अनन्या"),
        ("🤱", "Someone you love"),
        ("{mother}", "{mother}"),
        ("A" * 40, "A" * 29 + "."),
        ("€" * 40, "€" * 14 + "."),  # a euro takes two places
    ],
)
def test_a_name_is_written_in_gsm_7_if_all_of_it_can_be(name: str, plain: str) -> None:
    assert plain_name(name) == plain


@given(st.one_of(texts, gsm_texts))
@example("a" * 152 + "€" + "a" * 152)  # the euro takes two places and goes whole into the second of three parts
@example("ж" * 66 + "𠮷" + "ж" * 66)
def test_segments_are_counted_as_the_provider_counts_them(text: str) -> None:
    assert segments(text) == count_segments(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a" * 160, 1),
        ("a" * 161, 2),
        ("a" * 307, 3),
        ("é" * 160, 1),
        ("€" * 80, 1),
        ("€" * 81, 2),
        ("ж" * 70, 1),
        ("ж" * 71, 2),
    ],
)
def test_segments_are_counted_as_the_alphabets_say(text: str, count: int) -> None:
    assert segments(text) == count


def test_one_emoji_would_turn_one_segment_into_three() -> None:
    assert segments("a" * 140) == 1
    assert segments("a" * 140 + "🤱") == 3

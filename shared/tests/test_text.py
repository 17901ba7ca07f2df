"""Texts that other people read: links, and characters that are not seen, are refused; what people write is not."""

# ruff: noqa: RUF001  (letters that look like others are the point)

import pytest

from servicekit.text import (
    INVISIBLE,
    LINK,
    OUR_NAME,
    PHONE_NUMBER,
    SENTENCE,
    problem_for_readers,
    problem_with_name,
)

ZERO_WIDTH_JOINER, VARIATION = "\u200d", "\ufe0f"


@pytest.mark.parametrize(
    "text",
    [
        "Ada",
        "Dr. Who",
        "J.R. Smith",
        "J. R. R. Tolkien",
        "St. Mary's",
        "Anna-Lena O'Neill, Ph.D.",
        "Zoë Müller",
        "at 3.30pm",
        "8.5 cm, e.g. nearly there",
        "Born on 18.11.2026 at 4 a.m.",
        "Well...yes",
        "Wait…what?!",
        "Any moment now. We are in room 4.2.",
        "He is here.",
        "She is here . . . so tired",
        "हम आ गए. धन्यवाद",
        "Ring the ward: 020 7946 0018",
        "50/50, and/or tomorrow",
        "生まれました。ありがとう",
        "Родилась девочка. Всё хорошо",
        f"A family: 👨{ZERO_WIDTH_JOINER}👩{ZERO_WIDTH_JOINER}👧",
        f"With love ❤{VARIATION}, No. 1{VARIATION}\u20e3",
        "Cymru \U0001f3f4\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f",
        f"ශ්{ZERO_WIDTH_JOINER}රී",
        "می\u200cخواهم",
    ],
)
def test_what_people_write_passes(text: str) -> None:
    assert problem_for_readers(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "bank.com",
        "Your Bank: BANK.COM",
        "http://x",
        "https://example",
        "bit.ly/abc",
        "www.x",
        "x.com",
        "example .com",
        "me@example.org",
        "sub.domain.co.uk",
        "192.168.0.1/login",
        "банк.рф",
        "xn--80ab.xn--p1ai",
        "bank．com",
        "bank。com",
        "bank․com",
        "ｂａｎｋ．ｃｏｍ",
        "ⓑⓐⓝⓚ.ⓒⓞⓜ",
        "𝐛𝐚𝐧𝐤.𝐜𝐨𝐦",
        "⒈com",
        "bank.😀com",  # a name is sent without its emoji
        "bank.c\u0308om",
        f"bank.{VARIATION}com",
        "She is here.So happy",  # a phone makes a link of it
        "bit . ly/abc",
        "банк。рф",
        "उदाहरण.भारत",  # marks that take a place of their own are part of a word
        "bank.\u302ecom",  # such a mark is lost when the text is written in GSM-7
    ],
)
def test_a_link_is_refused_however_it_is_written(text: str) -> None:
    assert problem_for_readers(text) == LINK


@pytest.mark.parametrize(
    "text",
    [
        "pay\u200bpal",
        f"pay{ZERO_WIDTH_JOINER}pal",
        "Ada\u202egnp.exe",
        "\u2066Ada\u2069",
        "Ada\u200f",
        "A\u00adda",
        "\ufeffAda",
        "\u3164",
        "\u2800\u2800",
        "line\u2028separator",
        "hidden \U000e0041\U000e0042",
        f"😀{ZERO_WIDTH_JOINER}{ZERO_WIDTH_JOINER}😀",
        f"{VARIATION}Ada",
    ],
)
def test_a_character_that_is_not_seen_is_refused(text: str) -> None:
    assert problem_for_readers(text) == INVISIBLE


@pytest.mark.parametrize("name", ["Ada", "Ada II", "Grace, room 4102", "M. O'Neill-Müller", "Ada 🌿"])
def test_a_name_may_have_a_few_digits(name: str) -> None:
    assert problem_with_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "Your bank 0800 111 2222",
        "Bank: ring +44 (0)20-7946.0018",
        "Text WIN to 88222",
        "Bank ٠٨٠٠١١١٢٢٢٢",
        "Bank ⓪⑧⓪⓪①①①",
        "Bank ０８００１１１",
    ],
)
def test_a_name_has_no_phone_number_however_it_is_written(name: str) -> None:
    """A name is in the one text that a person gets without having agreed."""
    assert problem_with_name(name) == PHONE_NUMBER
    assert problem_for_readers(name) is None, "an announcement may have one"


def test_a_name_has_no_link_either() -> None:
    assert problem_with_name("bit.ly/abc") == LINK


@pytest.mark.parametrize(
    "name",
    [
        "FernLabour",
        "Fern Labour",
        "fern-labour support",
        "F.E.R.N. Labour",
        "\U0001d405ern\U0001d40b\u00e4bour",  # ornamental letters, and an accent that is lost in GSM-7
        "\uff26\uff25\uff32\uff2e LABOUR",
    ],
)
def test_a_name_does_not_have_ours_however_it_is_written(name: str) -> None:
    assert problem_with_name(name) == OUR_NAME
    assert problem_for_readers(name) is None, "an announcement may have it, in quotation marks"


@pytest.mark.parametrize(
    "name",
    [
        "Ada. Pay now",
        "Your Bank. Ring us",
        "Ada\u2026 pay now",
        "Ada). Pay",
        "\u307f\u3093\u306a\u3002\u307f\u3093\u306a",
        "Bank: pay",
        "Bank\uff1a pay",
        "Bank\ua789 pay",
        "You have won!",
        "Ada\u203c",
        "Ada? Pay now",
        "\u0622\u062f\u0627\u061f",
    ],
)
def test_a_name_is_no_sentence(name: str) -> None:
    """It would go on in our name: "FernLabour: Ada. Pay now would like to text you"."""
    assert problem_with_name(name) == SENTENCE
    assert problem_for_readers(name) is None, "an announcement may be one"


@pytest.mark.parametrize(
    "name",
    [
        "Mrs. Smith",
        "Dr. M. O'Neill-M\u00fcller",
        "J.R. Smith",
        "Jos\u00e9 M\u00aa. Garc\u00eda",
        "Sam Smith Jr.",
        "Prof. St. John Ph.D.",
        "Ada.",
        "Fern",
        "Fern Labarre",
        "\u0410\u0434\u0430 \u041b. \u0411.",
    ],
)
def test_initials_and_abbreviations_are_parts_of_a_name(name: str) -> None:
    assert problem_with_name(name) is None

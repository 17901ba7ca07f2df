"""No phone number and no text of a message in a log line, wherever it came from."""

import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog import get_logger

from messaging.masking import mask
from servicekit import logs

PHONE = "+12025550123"


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_is_a_sentence_with_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("test-process")

    get_logger().info("event published", event_id="1", attempt=2)

    [line] = lines(capsys)
    assert (line["event"], line["event_id"], line["attempt"], line["process"]) == (
        "event published",
        "1",
        2,
        "test-process",
    )


def test_personal_data_is_masked_in_fields_nested_values_exceptions_and_other_libraries(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("test-process")

    get_logger().info("a", phone=PHONE, body="The baby is here", nested={"to": PHONE, "list": [f"call {PHONE}"]})
    try:
        raise ValueError(f"Key (phone)=({PHONE}) already exists")
    except ValueError:
        get_logger().exception("b")
    logging.getLogger("other.library").warning("POST To=%%2B12025550123 for %s", PHONE)

    printed = json.dumps(lines(capsys))
    assert "2025550123" not in printed
    assert "baby" not in printed
    assert "already exists" in printed


@given(st.from_regex(r"\+[1-9][0-9]{6,14}", fullmatch=True))
def test_every_e164_number_is_masked_and_its_surroundings_stay(phone: str) -> None:
    assert mask(f"to {phone}, please") == "to [phone], please"


def test_ids_and_times_are_left_alone() -> None:
    text = "01a1e283-e2c1-72f9-a4d3-469915e434d8 at 2026-11-16T04:00:00+00:00"

    assert mask(text) == text

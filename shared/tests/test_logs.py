"""No phone number and no text of a message in a log line, wherever it came from."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

import pytest
import structlog
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
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


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


@pytest.mark.parametrize(("level", "expected"), [("INFO", []), ("DEBUG", ["ours"])])
def test_at_debug_only_our_own_lines_are_added(
    capsys: pytest.CaptureFixture[str], level: str, expected: list[str]
) -> None:
    logs.configure("test-process", level)

    get_logger().debug("ours")
    logging.getLogger("other.library").debug("a frame was sent")

    assert [line["event"] for line in lines(capsys)] == expected


def test_ids_and_times_are_left_alone() -> None:
    text = "01a1e283-e2c1-72f9-a4d3-469915e434d8 at 2026-11-16T04:00:00+00:00"

    assert mask(text) == text


@pytest.mark.parametrize(
    "value", ["half of a pair: \ud83e", 2**70, {1: {"phone": PHONE}}, UUID(int=7), {"to"}, ValueError(PHONE)]
)
def test_every_value_makes_a_line_of_json(capsys: pytest.CaptureFixture[str], value: object) -> None:
    logs.configure("test-process")

    get_logger().info("a", value=value, beside=f"{PHONE} and \ud83e")

    [line] = lines(capsys)
    assert line["event"] == "a"
    assert "2025550123" not in json.dumps(line)


def test_a_line_below_the_level_is_not_written_ours_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("test-process", "WARNING")

    get_logger().info("a")
    logging.getLogger("other.library").info("b")

    assert lines(capsys) == []


def test_a_line_that_cannot_be_written_does_not_fail_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure("test-process")

    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        for _ in range(10):
            get_logger().info("a", padding="x" * 5000)
        monkeypatch.undo()
        with suppress(OSError):
            full.close()

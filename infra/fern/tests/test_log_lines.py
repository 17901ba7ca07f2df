"""`fern logs`: the lines of all processes in one order, for people and for programs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fern.cli import main
from fern.commands.logs import _Reader
from fern.log_lines import of_containers
from fern.settings import Settings


def line(second: int, process: str, event: str, level: str = "info", **fields: object) -> str:
    facts = {
        **fields,
        "event": event,
        "process": process,
        "severity": level.upper(),
        "timestamp": f"2031-05-20T14:30:{second:02}.5Z",
    }
    return json.dumps(facts) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FERN_HOME", str(tmp_path))
    monkeypatch.setenv("FERN_PORT_BASE", "8400")
    logs = tmp_path / "logs"
    logs.mkdir()
    relay = line(1, "labour-relay", "events published", count=2, topic="labour.begun")
    (logs / "labour-relay.log").write_text(relay + line(4, "labour-relay", "x", "error", exception="Oh\nno"))
    consumer = line(3, "notification-consumer-2", "batch handled", reason="two words", trace_id="1")
    (logs / "notification-consumer-2.log").write_text(consumer)
    (logs / "postgres.log").write_text(
        "2031-05-20 14:30:02.250 UTC [7] ERROR:  no such table\n2031-05-20 14:30:02.251 UTC [7] STATEMENT:  SELECT\n\tone\n"
    )
    (logs / "postgres.log.1").write_text("2031-05-20 14:30:00.000 UTC [7] LOG:  of before the rotation\n")
    return logs


def shown(*arguments: str) -> list[str]:
    done = CliRunner().invoke(main, ["logs", *arguments])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_the_logs_of_all_processes_are_merged_by_time_with_their_whole_names(folder: Path) -> None:
    assert shown() == [
        "2031-05-20 14:30:01.500  labour-relay             info     events published  count=2 topic=labour.begun",
        "2031-05-20 14:30:02.250  postgres                 error    no such table",
        "2031-05-20 14:30:02.251  postgres                 statement  SELECT",
        "    one",
        '2031-05-20 14:30:03.500  notification-consumer-2  info     batch handled  reason="two words"',
        "2031-05-20 14:30:04.500  labour-relay             error    x",
        "    Oh",
        "    no",
    ]


def test_only_the_last_lines_of_all_or_those_of_one_process_are_shown(folder: Path) -> None:
    assert len(shown("-n", "2")) == 4
    assert [text.split()[2] for text in shown("postgres", "-n", "1")[:1]] == ["postgres"]


def test_for_programs_every_line_is_the_object_that_was_logged(folder: Path) -> None:
    first, error, *_ = map(json.loads, shown("--json"))

    assert first == json.loads((folder / "labour-relay.log").read_text().splitlines()[0])
    assert error["event"] == "no such table"
    assert error["process"] == "postgres"


def test_a_reader_that_follows_gets_new_lines_of_old_and_new_files_and_of_rotated_ones(folder: Path) -> None:
    reader = _Reader(Settings.load(), None)
    reader.new()

    whole, half = line(6, "labour-relay", "six"), line(7, "labour-relay", "seven")
    with (folder / "labour-relay.log").open("a") as file:
        file.write(whole + half[:20])
    (folder / "labour-relay-2.log").write_text(line(5, "labour-relay-2", "five"))
    (folder / "notification-consumer-2.log").write_text(line(8, "n", "8"))
    assert [one.facts["event"] for one in reader.new()] == ["five", "six", "8"]

    with (folder / "labour-relay.log").open("a") as file:
        file.write(half[20:])
    assert [one.facts["event"] for one in reader.new()] == ["seven"]


def test_the_lines_of_containers_are_merged_by_time_with_the_names_of_the_processes() -> None:
    printed = (
        f"labour-relay-2           | {line(3, 'labour-relay', 'three')}"
        f"labour-relay-1           | {line(1, 'labour-relay', 'one')}"
        "labour-relay-1           | of one\n"
        "fernlabour-postgres-1    | 2031-05-20 14:30:02.250 UTC [7] LOG:  two\n"
    )

    merged = [(one.process, one.facts["event"], one.more) for one in of_containers(printed)]

    assert merged == [("labour-relay", "one", ["of one"]), ("postgres", "two", []), ("labour-relay-2", "three", [])]


def test_a_process_without_a_log_is_refused_with_the_names_that_there_are(folder: Path) -> None:
    done = CliRunner().invoke(main, ["logs", "nothing"])

    assert done.exit_code == 1
    assert "there is no log of nothing" in done.stderr
    assert "notification-dispatcher" in done.stderr

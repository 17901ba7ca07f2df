"""Every command of every chapter of the tutorial, in order, with the output that the chapter shows.

A chapter is one bash session. A ```sh block is run; a ```text block right after it is its output, errors included, where `…`
stands for anything within a line, and a line with only `…` for any number of lines. What differs from run to run is not compared
(`_VARYING`): ids, references, times, numbers of 12 digits and more, the width of columns, and bash's messages about killed jobs.
A command may fail only if its line shows the exit code (`$?`).
"""

import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from e2e.support.api import client
from e2e.support.installation import Installation
from e2e.support.waiting import until
from fern.runtime.system import processes_now
from fern.settings import PROJECT_ROOT

FOLDER = PROJECT_ROOT / "docs" / "tutorial"
CHAPTERS = sorted(FOLDER.glob("[0-9][0-9]-*.md"))
PARTS = ("**Goal.**", "```mermaid\n", "\n## Break it\n", "\n<details>\n<summary>", "\n## Back to a clean state\n")
DIAGRAM = re.compile(r"^(flowchart (LR|TB|TD)|sequenceDiagram|stateDiagram-v2|gantt)$")
RUN_BY_THE_FIXTURE = "make up ARGS=--embedded\n"
LIMIT = 900  # seconds for a chapter; only ever waited for when something is wrong


@dataclass(frozen=True)
class Step:
    line: int  # of the chapter
    command: str
    output: str | None


def steps(text: str) -> list[Step]:
    blocks = re.finditer(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, flags=re.MULTILINE | re.DOTALL)
    found = (Step(text.count("\n", 0, block.start(1)) + 1, block[1], block[2]) for block in blocks)
    return [step for step in found if step.command != RUN_BY_THE_FIXTURE]


def script(steps: list[Step], failures: Path) -> str:
    """The commands on the lines that they have in the chapter, so that a failure has its line number; a mark ends each output."""
    lines = [f"trap 'echo $LINENO >> {failures}' ERR"]
    for step in steps:
        lines += [""] * (step.line - 1 - len(lines)) + step.command.splitlines() + ["echo $'\\x1e'"]
    return "\n".join(lines) + "\n"


_VARYING = (
    (re.compile(r"^bash: line \d+: +\d+ (Killed|Terminated) .*\n", re.MULTILINE), ""),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"#[A-Z2-7]{8}\b"), "<reference>"),
    (re.compile(r"(?<!\S)-?\d{12,20}\b"), "<long number>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00(:00)?)?"), "<time>"),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"[ \t]+"), " "),
)


def plain(text: str) -> list[str]:
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return [line.strip() for line in text.strip().splitlines()]


def matches(printed: str, promised: str) -> bool:
    pattern = ""
    for line in plain(promised):
        pattern += r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in plain(printed))) is not None


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_a_chapter_does_what_it_says_and_leaves_the_system_as_it_was(
    chapter: Path, installation: Installation, tmp_path: Path
) -> None:
    here, before = steps(installation.adapt(chapter.read_text())), sources()

    printed, failures, left = run(here, installation, tmp_path)

    assert [line for line in failures if not shows_exit_code(chapter, line)] == [], "".join(printed)
    assert len(printed) == len(here) + 1, printed[-1]
    for step, output in zip(here, printed, strict=False):
        if step.output is not None and not matches(output, step.output):
            pytest.fail(f"{chapter.name}:{step.line} promises\n{step.output}\nbut it printed\n{output}", pytrace=False)
    assert left == []
    until(lambda: troubles(installation), lambda found: not found, what="a killed or frozen process is healthy again")
    assert sources() == before


def shows_exit_code(chapter: Path, line: int) -> bool:
    """Of the command that begins on this line and may continue on the next ones."""
    command, _, _ = "\n".join(chapter.read_text().splitlines()[line - 1 :]).replace("\\\n", "").partition("\n")
    return "$?" in command


def run(steps: list[Step], installation: Installation, folder: Path) -> tuple[list[str], list[int], list[str]]:
    """The output of each step, the lines of commands that failed, and the processes that still run afterwards."""
    failures, output = folder / "failures", (folder / "output").open("w+")
    failures.touch()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    session = subprocess.Popen(
        ["bash", "-c", script(steps, failures)],
        cwd=PROJECT_ROOT,
        env={**installation.environment, "PATH": path, "TMPDIR": str(folder), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        session.wait(LIMIT)
    except subprocess.TimeoutExpired:
        output.write(f"not done after {LIMIT} s\n")
    left = end_session(session.pid)
    session.wait()
    output.seek(0)
    return output.read().split("\x1e\n"), [int(line) for line in failures.read_text().split()], left


def end_session(leader: int) -> list[str]:
    """Kill the processes of a session that still run; returns their command lines."""
    left = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                left.append(" ".join(process.cmdline()))
                process.kill()
    return left


def troubles(installation: Installation) -> list[str]:
    """Faults that are still active, and processes that are not healthy or frozen."""
    faults = [
        item["name"]
        for process in ("pubsub-http", "sms-sandbox")
        for item in client(installation.settings.url(process)).get("/faults").json()["items"]
        if item["active"]
    ]
    rows = processes_now(installation.settings)
    return faults + [
        row.process
        for row in rows
        if row.health != "healthy" or not row.pid or psutil.Process(row.pid).status() == psutil.STATUS_STOPPED
    ]


def sources() -> dict[Path, float]:
    """A reader adds a fault of their own to the sources, and must remove it again."""
    return {path: path.stat().st_mtime for path in (PROJECT_ROOT / "services").rglob("*.py")}


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_a_chapter_has_all_its_parts_and_leads_on(chapter: Path) -> None:
    text, position = chapter.read_text(), CHAPTERS.index(chapter)

    assert [part for part in PARTS if part not in text] == []
    following = CHAPTERS[position + 1].name if position + 1 < len(CHAPTERS) else "README.md"
    assert f"]({following})" in text.splitlines()[-1]


@pytest.mark.parametrize("page", [FOLDER / "README.md", *CHAPTERS], ids=lambda page: page.stem)
def test_every_diagram_of_a_page_can_be_drawn(page: Path) -> None:
    text = page.read_text()

    for diagram in re.findall(r"^```mermaid\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        first, *lines = diagram.splitlines()
        assert DIAGRAM.match(first), first
        assert len(lines) >= 2
        for opening, closing in ("[]", "()", "{}"):
            assert diagram.count(opening) == diagram.count(closing), diagram
        assert diagram.count('"') % 2 == 0, diagram
        words = [line.split()[0] for line in lines]
        assert sum(words.count(word) for word in ("subgraph", "alt", "opt", "loop")) == words.count("end"), diagram


def test_the_index_leads_to_every_chapter() -> None:
    rows = re.findall(r"^\| (\d+) \| \[.*\]\((\d\d-.*\.md)\)", (FOLDER / "README.md").read_text(), flags=re.MULTILINE)

    assert rows == [(str(number), path.name) for number, path in enumerate(CHAPTERS, 1)]
    assert len(CHAPTERS) == 16


def test_after_all_chapters_every_event_and_every_text_is_accounted_for(installation: Installation) -> None:
    account = installation.json("audit")

    assert account["findings"] == []
    assert account["clean"]

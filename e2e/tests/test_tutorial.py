"""Every command of every chapter of the tutorial, in order, with the output that the chapter shows (`e2e.support.transcript`).

A command may fail only if its line shows the exit code (`$?`).
"""

import re
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from e2e.support.api import client
from e2e.support.installation import Installation
from e2e.support.transcript import matches, run, steps
from e2e.support.waiting import until
from fern.runtime.system import processes_now
from fern.settings import PROJECT_ROOT

FOLDER = PROJECT_ROOT / "docs" / "tutorial"
CHAPTERS = sorted(FOLDER.glob("[0-9][0-9]-*.md"))
PARTS = (
    "**Goal.**",
    "```mermaid\n",
    "\n## Break it\n",
    "\n<details>\n<summary>",
    "\n## Back to a clean state\n",
    "\n## What you can do now\n",
)
DIAGRAM = re.compile(r"^(flowchart (LR|TB|TD)|sequenceDiagram|stateDiagram-v2|gantt)$")
CHANGE = re.compile(r"^change <<'EOF'\n(.*?)^EOF$", flags=re.MULTILINE | re.DOTALL)
RUN_BY_THE_FIXTURE = "make up ARGS=--embedded\n"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_a_chapter_does_what_it_says_and_leaves_the_system_as_it_was(
    chapter: Path, installation: Installation, tmp_path: Path
) -> None:
    here, before = steps(installation.adapt(chapter.read_text()), RUN_BY_THE_FIXTURE), sources()

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


def troubles(installation: Installation) -> list[str]:
    """Faults that are still active, phones that still refuse texts, and processes that are not healthy or frozen."""
    faults = [
        item["name"]
        for process in ("pubsub-http", "sms-sandbox")
        for item in client(installation.settings.url(process)).get("/faults").json()["items"]
        if item["active"]
    ]
    refusing = installation.execute("SELECT phone FROM consent WHERE state = 'REFUSED'", "notification")
    rows = processes_now(installation.settings)
    return [*faults, *(row["phone"] for row in refusing)] + [
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


def test_the_changes_of_the_chapter_about_an_own_event_still_apply_to_the_sources(tmp_path: Path) -> None:
    changes = CHANGE.findall((FOLDER / "18-your-own-event.md").read_text())
    for name in ("shared", "services", "infra"):
        shutil.copytree(PROJECT_ROOT / name, tmp_path / name)

    assert len(changes) == 4
    for change in changes:
        command = ["git", "apply", "--recount", "-"]
        done = subprocess.run(
            command, input=change, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stderr


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
    assert len(CHAPTERS) == 20


def test_after_all_chapters_every_event_and_every_text_is_accounted_for(installation: Installation) -> None:
    account = installation.json("audit")

    assert account["findings"] == []
    assert account["clean"]

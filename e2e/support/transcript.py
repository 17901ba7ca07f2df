"""The commands of a document, run in order in one bash session, with the output that the document shows.

A ```sh block is run; a ```text block right after it is its output, errors included, where `…` stands for anything within a line,
and a line with only `…` for any number of lines. What differs from run to run is not compared (`_VARYING`): ids, references,
times, numbers of 12 digits and more, the width of columns, and bash's messages about killed jobs.
"""

import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from e2e.support.installation import Installation
from fern.settings import PROJECT_ROOT

LIMIT = 900  # seconds for a document; only ever waited for when something is wrong


@dataclass(frozen=True)
class Step:
    line: int  # of the document
    command: str
    output: str | None


def steps(text: str, without: str = "") -> list[Step]:
    """`without` is a block that is left out."""
    blocks = re.finditer(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, flags=re.MULTILINE | re.DOTALL)
    found = (Step(text.count("\n", 0, block.start(1)) + 1, block[1], block[2]) for block in blocks)
    return [step for step in found if step.command != without]


def script(steps: list[Step], failures: Path) -> str:
    """The commands on the lines that they have in the document, so that a failure has its number; a mark ends each output."""
    lines = [f"trap 'echo $LINENO >> {failures}' ERR"]
    for step in steps:
        lines += [""] * (step.line - 1 - len(lines)) + step.command.splitlines() + ["echo $'\\x1e'"]
    return "\n".join(lines) + "\n"


_VARYING = (
    (re.compile(r"^(bash|environment): line \d+: +\d+ (Killed|Terminated) .*\n", re.MULTILINE), ""),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"#[A-Z2-7]{8}\b"), "<reference>"),
    (re.compile(r"(?<!\S)-?\d{12,20}\b"), "<long number>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00(:00)?)?"), "<time>"),
    (re.compile(r"\+[\d,…]+ ms"), "<after>"),
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

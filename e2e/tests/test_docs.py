"""Every page of the documentation: its links, its commands, the indexes and the form of the decision records."""

import ast
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
RECORDS = sorted(DECISIONS.glob("[0-9]*.md"))

LINK = re.compile(r"\]\(<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)|(?:href|src|srcset)=\"([^\"]+)\"", flags=re.MULTILINE)
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", flags=re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^ *```.*?^ *```$", flags=re.MULTILINE | re.DOTALL)
RECORD = re.compile(
    r"# (?P<number>\d{4})\. (?P<title>.+)\n\n"
    r"Date: (?P<date>\d{4}-\d\d-\d\d)\n\n"
    r"Status: (?P<status>proposed|accepted|superseded (in part )?by \d{4})\n\n"
    r"## Context\n.+\n\n## Decision\n.+\n\n## Price\n.+",
    flags=re.DOTALL,
)


def pages() -> list[Path]:
    """Every Markdown file that is in git or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=240).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).exists()]


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub links to them; a heading that is there twice gets a number."""
    found = list[str]()
    for heading in re.findall(r"^#+ +(.+?) *#*$", FENCED.sub("", page.read_text()), flags=re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        before = found.count(slug)
        found += [slug, f"{slug}-{before}"] if before else [slug]
    return set(found)


def broken(page: Path) -> list[str]:
    """The relative links of a page that lead to no file, or to no heading of it."""
    found = list[str]()
    for groups in LINK.findall(CODE.sub("", page.read_text())):
        link = next(filter(None, groups))
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    assert broken(page) == []


@pytest.mark.parametrize("link", ["nowhere.md", "README.md#nowhere", "#nowhere", "README.md#title-3"])
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, link: str) -> None:
    page = tmp_path / "README.md"
    page.write_text(
        f"# Title\n\n## `Title`!\n\n[good](#title), [good](README.md#title-1), `[code](x.md)`, [bad]({link})\n"
    )

    assert broken(page) == [link]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))

    assert set(re.findall(r"`make ([a-z-]+)[` ]", page.read_text())) <= targets


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    paths = re.findall(r"`((?:docs|e2e|infra|services|shared)/[\w./-]+)`", page.read_text())

    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_index_of_the_documentation_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    named = set(re.findall(r"\]\(([^)]+\.md)\)", index))

    top = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    folders = {f"{path.parent.name}/README.md" for path in (ROOT / "docs").glob("*/*.md")}
    assert top | folders <= named


def test_every_decision_record_has_the_next_number_a_date_a_status_and_its_row_in_the_index() -> None:
    rows = list[str]()
    for number, path in enumerate(RECORDS, 1):
        record = RECORD.match(path.read_text())
        assert record, f"{path.name} does not have the form that docs/decisions/README.md describes"
        assert (record["number"], path.name[:5]) == (f"{number:04d}", f"{number:04d}-"), path.name
        rows.append(
            f"| {record['number']} | [{record['title']}]({path.name}) | {record['date']} | {record['status']} |"
        )

    index = (DECISIONS / "README.md").read_text().splitlines()
    assert [line for line in index if re.match(r"\| \d", line)] == rows
    assert {path.name for path in DECISIONS.glob("*.md")} == {"README.md", *(path.name for path in RECORDS)}


def test_every_fault_point_in_the_code_is_in_the_table_of_crash_points() -> None:
    code = "".join(path.read_text() for folder in ("shared", "services") for path in (ROOT / folder).rglob("*.py"))
    points = re.findall(r"^[A-Z_]+ = FaultPoint\(\s*\"([^\"]+)\"", code, flags=re.MULTILINE)
    table = re.findall(r"^\| `([a-z_.]+)` \|", (ROOT / "docs" / "crash-points.md").read_text(), flags=re.MULTILINE)

    assert sorted(points) == sorted(table)


STOP = re.compile(r"^\| (\d+) \| \[.+?\]\((.+?)\) \| `(.+?)` \|", flags=re.MULTILINE)


def functions(file: Path) -> set[str]:
    """The functions of a module and, with the name of the class, the methods of its classes."""
    found = set[str]()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


def test_the_walk_has_at_most_twenty_stops_and_each_is_a_function_that_exists() -> None:
    page = ROOT / "docs" / "architecture.md"
    stops = STOP.findall(page.read_text())

    assert [int(number) for number, _, _ in stops] == list(range(1, 21))
    assert [(link, name) for _, link, name in stops if name not in functions(page.parent / link)] == []

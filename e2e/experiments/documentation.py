"""What an experiment writes into the documentation: a section between two markers of a page, and a chart."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fern.errors import FernError
from fern.settings import PROJECT_ROOT

DOCS = PROJECT_ROOT / "docs"
END = "<!-- end -->"


def with_section(page: Path, section: str, command: str) -> str:
    """The page with this section between the markers of the command."""
    begin = f"<!-- begin: written by `{command}` -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(END)
    return f"{before}{begin}\n\n{section}\n\n{END}{after}"


def markdown_table(rows: Sequence[Sequence[str]], ruler: str) -> list[str]:
    """The first row is the heading."""
    heading, *others = (f"| {' | '.join(row)} |" for row in rows)
    return [heading, ruler, *others]


def write(pages: Mapping[Path, str]) -> None:
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def check(pages: Mapping[Path, str], command: str) -> None:
    """Raise `FernError` if a page or chart has other numbers than this run."""
    if any(not path.exists() or path.read_text() != text for path, text in pages.items()):
        names = " or ".join(str(path.relative_to(PROJECT_ROOT)) for path in pages)
        raise FernError(f"{names} has other numbers than this run.", command=command)

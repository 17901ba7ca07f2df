"""One word for one thing: what the glossary has retired is nowhere in the project."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
TEXTS = ("*.md", "*.py", "*.js", "*.html", "*.css", "*.sh", "*.toml", "*.yml", "*.sql", "Makefile")
# The glossary itself, what has happened already, and names that are not ours to change.
ALLOWED = {
    "docs/glossary.md": ".*",
    "e2e/tests/test_words.py": ".*",
    "CHANGELOG.md": ".*",
    "services/labour/migrations/versions/0001_labours_and_outbox.py": "news",
    "services/labour/migrations/versions/0003_delivery_status.py": "news",
    "services/labour/labour/application/told.py": "news",  # a deprecated field of the API
    "services/labour/labour/http/examples.py": "news",
    "services/labour/tests/test_foundations.py": "news",
    "shared/servicekit/api_page/swagger-ui-bundle.js": ".*",
    "shared/servicekit/api_page/swagger-ui.css": ".*",
    "infra/fern/fern/runtime/postgres.py": "nobody",  # a user of the system
    "docs/decisions/0001-embedded-runtime.md": "nobody",
    "infra/sms_sandbox/sms_sandbox/sandbox.py": "hint",
}


def retired() -> list[str]:
    """The words of the columns headed `not`."""
    words, column = list[str](), None
    for line in GLOSSARY.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "not" in cells:
            column = cells.index("not")
        elif not line.startswith("|"):
            column = None
        elif column is not None and not set(line) <= set("|- "):
            words += [word.strip() for word in cells[column].split(",") if word.strip()]
    return words


def files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", *TEXTS]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=240).stdout
    return [line for line in listed.splitlines() if (ROOT / line).exists()]


def found_in(name: str, pattern: re.Pattern[str]) -> list[str]:
    allowed = ALLOWED.get(name, "(?!)")
    return [
        f"{name}:{number}: {word[0]}"
        for number, line in enumerate((ROOT / name).read_text().splitlines(), start=1)
        for word in pattern.finditer(line)
        if not re.fullmatch(allowed, word[0], flags=re.IGNORECASE)
    ]


def test_no_file_has_a_word_that_the_glossary_has_retired() -> None:
    words = retired()
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, words))})\b", flags=re.IGNORECASE)

    assert {"news", "books", "mend", "nobody"} <= set(words)
    assert [found for name in files() for found in found_in(name, pattern)] == []

"""One word for one thing: what the glossary has retired is nowhere in the project."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
TEXTS = """
    *.md *.py *.js *.html *.css *.sh *.awk *.toml *.yml *.yaml *.tf *.sql *Dockerfile Makefile
""".split()  # noqa: SIM905  (easier to extend)
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
    "shared/servicekit/http/api_page/swagger-ui-bundle.js": ".*",
    "shared/servicekit/http/api_page/swagger-ui.css": ".*",
    "infra/fern/fern/runtime/postgres.py": "nobody",  # a user of the system
    "docs/decisions/0001-embedded-runtime.md": "nobody",
    "infra/sms_sandbox/sms_sandbox/sandbox.py": "hint",
}
IN_TESTS = "anyone|everyone|no one"  # all people or messages of a test, which it has just named
BREAK = r"""(?:\s|#|//|\*|")+"""  # a phrase may be broken over two lines, also of a comment or of a text in code


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
    allowed = ALLOWED.get(name, IN_TESTS if name.startswith("e2e/") or "/tests/" in name else "(?!)")
    return in_text(name, (ROOT / name).read_text(), pattern, allowed)


def in_text(name: str, text: str, pattern: re.Pattern[str], allowed: str) -> list[str]:
    return [
        f"{name}:{text.count(chr(10), 0, word.start()) + 1}: {word[0]}"
        for word in pattern.finditer(text)
        if not re.fullmatch(allowed, word[0], flags=re.IGNORECASE)
    ]


def pattern_of(words: list[str]) -> re.Pattern[str]:
    phrases = "|".join(BREAK.join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"\b({phrases})\b", flags=re.IGNORECASE)


def test_no_file_has_a_word_that_the_glossary_has_retired() -> None:
    words = retired()
    pattern = pattern_of(words)

    assert {"news", "books", "mend", "nobody"} <= set(words)
    assert [found for name in files() for found in found_in(name, pattern)] == []


def test_a_phrase_is_found_also_where_a_line_breaks_it() -> None:
    pattern = pattern_of(["is away", "no one"])

    assert in_text("a", "x\nthe bus is\naway, no one.", pattern, "(?!)") == ["a:2: is\naway", "a:3: no one"]
    assert in_text("b", "# the bus is\n    # away", pattern, "no one") == ["b:1: is\n    # away"]
    assert in_text("c", "# no one", pattern, IN_TESTS) == []

"""Migrations after the last release leave its processes running, and lock no big table for long."""

from pathlib import Path

import pytest

from e2e.support.migration_rules import problems
from e2e.support.previous_release import MIGRATIONS
from fern.settings import PROJECT_ROOT

NEW = [
    path
    for service, released in MIGRATIONS.items()
    for path in sorted((PROJECT_ROOT / "services" / service / "migrations" / "versions").glob("*.py"))
    if path.name[:4] > released
]


@pytest.mark.parametrize("path", NEW, ids=lambda path: f"{path.parents[2].name}-{path.stem}")
def test_a_migration_after_the_last_release_follows_the_rules(path: Path) -> None:
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE labour DROP COLUMN notes",
        "ALTER TABLE labour RENAME COLUMN notes TO remarks",
        "ALTER TABLE labour ADD COLUMN place text NOT NULL",
        "ALTER TABLE labour ALTER COLUMN place SET NOT NULL",
        "ALTER TABLE labour ALTER COLUMN notes TYPE varchar(20)",
        "ALTER TABLE labour ADD CONSTRAINT named CHECK (notes <> '')",
        "CREATE INDEX by_notes ON labour (notes)",
        "UPDATE labour SET notes = ''",
    ],
)
def test_a_statement_that_breaks_the_release_before_or_locks_a_table_is_found_unless_it_is_marked(
    statement: str,
) -> None:
    assert len(problems(f"op.execute({statement!r})")) == 1
    assert problems(f"# contract: no process uses it\nop.execute({statement!r})") == []


def test_what_only_adds_is_allowed() -> None:
    added = "ALTER TABLE labour ADD COLUMN place text, ADD COLUMN rooms integer NOT NULL DEFAULT 1"
    assert (
        problems(f"op.execute({added!r})\nop.execute('CREATE TABLE a (b text)')\nop.execute('CREATE INDEX c ON a (b)')")
        == []
    )

"""`fern contracts`: generates schemas and pages from the events, keeps released schemas, and checks the events."""

import json
import subprocess
import sys
from pathlib import Path

import click

import contracts as package
from contracts.compatibility import refusals
from contracts.registry import EVENTS, json_schema
from fern.asyncapi import document
from fern.errors import ContractBroken
from fern.event_pages import pages
from fern.output import Group
from fern.settings import PROJECT_ROOT

SCHEMAS = Path(package.__file__).parent / "schemas"
RELEASED = SCHEMAS.with_name("released")  # as of the last release: only `fern contracts release` writes here
ASYNCAPI = PROJECT_ROOT / "docs" / "asyncapi.json"
PAGES = PROJECT_ROOT / "docs" / "events"
BEGIN, END = "<!-- begin: written by `fern contracts write` -->", "<!-- end -->"


@click.group(cls=Group)
def contracts() -> None:
    """Write, release and check the schemas of the events, and write the pages that describe them."""


@contracts.command()
def write() -> None:
    """Write the schema of every event, the pages in docs/events, and docs/asyncapi.json.

    A released schema only changes by optional fields and descriptions: exit code 25 if an event no longer matches it.
    """
    _write(generated())
    for page in pages_of_no_event():
        page.unlink()
        click.echo(f"deleted {page.relative_to(PROJECT_ROOT)}, which described no event")


@contracts.command()
def release() -> None:
    """Keep the schemas of all events as released: from now on each of them only changes by optional fields and descriptions.

    Part of every release, with its commit in infra/previous-release.toml. Exit code 25 if an event contradicts an earlier one.
    """
    _write({RELEASED / path.name: text for path, text in generated().items() if path.parent == SCHEMAS})


@contracts.command()
def check() -> None:
    """Look for events that are incomplete: no schema, topic, rule, reaction or words. Exit code 31 if there is one."""
    command = [sys.executable, "-m", "e2e.experiments.event_check"]
    sys.exit(subprocess.run(command, cwd=PROJECT_ROOT, check=False).returncode)


def generated() -> dict[Path, str]:
    """Every generated file with its text. Raises `ContractBroken` if an event contradicts its released schema."""
    check_released()
    texts = {
        SCHEMAS / f"{name}.v{version}.json": json.dumps(json_schema(event), indent=2) + "\n"
        for (name, version), event in EVENTS.items()
    }
    written = pages()
    index = PAGES / "README.md"
    before, _, rest = index.read_text().partition(BEGIN)
    texts[index] = f"{before}{BEGIN}\n\n{written.pop('')}\n\n{END}{rest.partition(END)[2]}"
    texts[ASYNCAPI] = json.dumps(document(), indent=2) + "\n"
    return texts | {PAGES / name: text for name, text in written.items()}


def check_released() -> None:
    """Compare every released schema with the event of today. Raises `ContractBroken` for the first that does not match."""
    events = {f"{name}.v{version}.json": (version, event) for (name, version), event in EVENTS.items()}
    for path in sorted(RELEASED.glob("*.json")):
        if path.name not in events:
            raise ContractBroken(
                f"{path.name} is released and has no struct any more. Keep the struct: events of it may still be replayed.",
                command="git diff shared/contracts/events.py",
            )
        version, event = events[path.name]
        if found := refusals(json.loads(path.read_text()), json_schema(event)):
            raise ContractBroken(
                f"{event.__name__} is not what {path.name} has released: {'; '.join(found)}. Add a struct with "
                f"`version = {version + 1}` for the change, and leave the released one as it was.",
                command=f"git diff shared/contracts/events.py shared/contracts/released/{path.name}",
            )


def _write(texts: dict[Path, str]) -> None:
    changed = {path: text for path, text in texts.items() if not path.exists() or path.read_text() != text}
    for path, text in changed.items():
        path.write_text(text)
        click.echo(f"wrote {path.name}")
    if not changed:
        click.echo("everything is written already")


def pages_of_no_event() -> list[Path]:
    known = {f"{name}.md" for name, _ in EVENTS} | {"README.md"}
    return [page for page in PAGES.glob("*.md") if page.name not in known]

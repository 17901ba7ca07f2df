"""`fern contracts`: what is generated from the events."""

import json
from pathlib import Path
from typing import Any

import click

import contracts as package
from contracts.registry import EVENTS, json_schema
from fern.errors import ContractBroken
from fern.event_pages import pages
from fern.settings import PROJECT_ROOT

SCHEMAS = Path(package.__file__).parent / "schemas"
PAGES = PROJECT_ROOT / "docs" / "events"
BEGIN, END = "<!-- begin: written by `fern contracts write` -->", "<!-- end -->"


@click.group()
def contracts() -> None:
    """The events of both services: their published schemas, and the pages that describe them."""


@contracts.command()
def write() -> None:
    """Write the schema of every new event, and the pages in docs/events.

    A published schema only changes by optional fields and descriptions: exit code 25 if an event no longer matches it.
    """
    changed = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    for path, text in changed.items():
        path.write_text(text)
        click.echo(f"wrote {path.relative_to(PROJECT_ROOT)}")
    for page in pages_of_no_event():
        page.unlink()
        click.echo(f"deleted {page.relative_to(PROJECT_ROOT)}, which described no event")
    if not changed:
        click.echo("everything is written already")


def generated() -> dict[Path, str]:
    """Every generated file with its text. Raises `ContractBroken` if an event contradicts its published schema."""
    texts = dict[Path, str]()
    for (name, version), event in EVENTS.items():
        path, schema = SCHEMAS / f"{name}.v{version}.json", json_schema(event)
        if path.exists() and not keeps(json.loads(path.read_text()), schema):
            raise ContractBroken(
                f"{event.__name__} is not what {path.name} has published. Add a struct with `version = {version + 1}` for the "
                "change, and leave the published one as it was.",
                command=f"git diff shared/contracts/events.py shared/contracts/schemas/{path.name}",
            )
        texts[path] = json.dumps(schema, indent=2) + "\n"
    written = pages()
    index = PAGES / "README.md"
    before, _, rest = index.read_text().partition(BEGIN)
    texts[index] = f"{before}{BEGIN}\n\n{written.pop('')}\n\n{END}{rest.partition(END)[2]}"
    return texts | {PAGES / name: text for name, text in written.items()}


def keeps(published: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether consumers of the published schema can read events of this one: optional fields may have been added."""
    fields, required = schema["properties"], schema.get("required", [])
    known = {name: field for name, field in fields.items() if name in published["properties"] or name in required}
    return bool(_meaning({**schema, "properties": known}) == _meaning(published))


def _meaning(schema: Any) -> Any:
    """The schema without its descriptions, which bind nobody."""
    if isinstance(schema, dict):
        return {key: _meaning(value) for key, value in schema.items() if (key, type(value)) != ("description", str)}
    return [_meaning(one) for one in schema] if isinstance(schema, list) else schema


def pages_of_no_event() -> list[Path]:
    known = {f"{name}.md" for name, _ in EVENTS} | {"README.md"}
    return [page for page in PAGES.glob("*.md") if page.name not in known]

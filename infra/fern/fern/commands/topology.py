"""`fern topology`: the topics and subscriptions of the bus."""

import json
from dataclasses import asdict

import click

from fern.output import json_option
from fern.settings import PROJECT_ID, Settings
from fern.topology import Declared, apply


@click.group()
def topology() -> None:
    """Topics and subscriptions, as declared in infra/topology.toml."""


@topology.command("apply")
@click.option("--project", envvar="PUBSUB_PROJECT_ID", default=PROJECT_ID, show_default=True)
@json_option
def apply_command(project: str, as_json: bool) -> None:
    """Create what is missing and update what differs. Nothing is deleted."""
    Settings.load().use_local_bus(project)
    applied = apply(Declared.load(), project)
    text = f"{applied.created} created, {applied.updated} updated, {applied.unchanged} as declared"
    click.echo(json.dumps(asdict(applied)) if as_json else text)


@topology.command("show")
@json_option
def show_command(as_json: bool) -> None:
    """Show what is declared."""
    declared = Declared.load()
    if as_json:
        click.echo(json.dumps(asdict(declared)))
        return
    for topic in declared.topics:
        readers = [name for name, (of, _) in declared.subscriptions.items() if of == topic]
        click.echo(f"{topic:32} → {', '.join(readers) or '(no subscription)'}")

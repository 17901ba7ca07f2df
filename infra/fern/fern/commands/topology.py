"""`fern topology`: topics and subscriptions, as declared and as applied."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict

import click

from fern.settings import PROJECT_ID, Settings
from fern.topology import Declared, apply


@click.group()
def topology() -> None:
    """Topics and subscriptions, declared in infra/topology.toml."""


def _project_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--project", envvar="PUBSUB_PROJECT_ID", default=PROJECT_ID, show_default=True)(command)


@topology.command("apply")
@_project_option
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def apply_command(project: str, as_json: bool) -> None:
    """Create what is missing and update what differs."""
    if project == PROJECT_ID:
        os.environ.setdefault("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{Settings.load().port('pubsub')}")
    applied = apply(Declared.load(), project)
    if as_json:
        click.echo(json.dumps(asdict(applied)))
    else:
        click.echo(f"{applied.created} created, {applied.updated} updated, {applied.unchanged} as declared")


@topology.command("show")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show_command(as_json: bool) -> None:
    """What is declared."""
    declared = Declared.load()
    if as_json:
        click.echo(json.dumps(asdict(declared)))
        return
    for topic in declared.topics:
        readers = [name for name, (of, _) in declared.subscriptions.items() if of == topic]
        click.echo(f"{topic:32} → {', '.join(readers) or '(nobody)'}")

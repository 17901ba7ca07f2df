"""`fern deployment`: generates files for production."""

import click

from fern.deployment import generated
from fern.output import Group
from fern.settings import PROJECT_ROOT


@click.group(cls=Group)
def deployment() -> None:
    """Generate files of infra/gcp, infra/kubernetes and infra/observability from infra/topology.toml and alerts.toml."""


@deployment.command()
def write() -> None:
    """Write the variables of Terraform, the queries of the exporters, the alert rules and the dashboard."""
    changed = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    for path, text in changed.items():
        path.write_text(text)
        click.echo(f"wrote {path.relative_to(PROJECT_ROOT)}")
    if not changed:
        click.echo("everything is written already")

"""`fern topology`: the topics and subscriptions of the bus."""

import json
from dataclasses import asdict, replace

import click

from fern.contexts import require_local
from fern.delivery import Delivery
from fern.output import Group, json_option
from fern.overrides import Overrides
from fern.settings import PROJECT_ID, Settings
from fern.topology import Declared, apply

AS_DECLARED = "declared"


@click.group(cls=Group)
def topology() -> None:
    """Apply, show or set the topics and subscriptions that infra/topology.toml declares."""


@topology.command("apply")
@click.option(
    "--project",
    envvar="PUBSUB_PROJECT_ID",
    help=f"Default: the context's project; locally {PROJECT_ID}.",
)
@json_option
def apply_command(project: str | None, as_json: bool) -> None:
    """Create what is missing and update what differs. Nothing is deleted.

    What `fern topology set` changed counts for the local project only.
    """
    settings = Settings.load()
    if settings.context:
        project, overrides = settings.use_bus(), {}
    else:
        project = project or PROJECT_ID
        settings.use_local_bus(project)
        overrides = Overrides.load(settings).delivery if project == PROJECT_ID else {}
    applied = apply(Declared.load(overrides), project)
    text = f"{applied.created} created, {applied.updated} updated, {applied.unchanged} as declared"
    click.echo(json.dumps(asdict(applied)) if as_json else text)


@topology.command("show")
@json_option
def show_command(as_json: bool) -> None:
    """Show the declared topics, and how each subscription is delivered."""
    settings = Settings.load()
    overrides = {} if settings.context else Overrides.load(settings).delivery
    declared = Declared.load(overrides)
    if as_json:
        click.echo(json.dumps(asdict(declared) | {"overrides": overrides}))
        return
    for topic in declared.topics:
        names = [name for name, (of, _) in declared.subscriptions.items() if of == topic]
        readers = [f"{name} ({declared.delivery.get(name, Delivery.PULL)})" for name in names]
        click.echo(f"{topic:32} → {', '.join(readers) or '(no subscription)'}")
    for consumer, delivery in overrides.items():
        click.echo(
            f"{consumer} is set to {delivery} on this machine; `fern topology set {consumer} declared` undoes it"
        )


@topology.command("set")
@click.argument("consumer")
@click.argument("delivery", type=click.Choice([*map(str, Delivery), AS_DECLARED]))
def set_command(consumer: str, delivery: str) -> None:
    """Switch all subscriptions of CONSUMER on this machine: pull, push, exactly-once, or as declared.

    A running system follows at once, and no message is lost. The declaration does not change; `fern reset` forgets the switch.
    """
    require_local("topology set")
    from fern.runtime.system import change  # needs more than the container has that applies the topology

    settings = Settings.load()
    overrides = Overrides.load(settings)
    others = {name: how for name, how in overrides.delivery.items() if name != consumer}
    wanted = others if delivery == AS_DECLARED else {**others, consumer: delivery}
    Declared.load({consumer: str(Delivery.PULL)})  # refuses a consumer that does not exist
    declared = Declared.load(wanted)
    settings.use_local_bus(PROJECT_ID)
    running = change(settings, replace(overrides, delivery=wanted), lambda: apply(declared, PROJECT_ID))
    click.echo(f"{consumer}: {delivery}{'' if running else ', from the next `fern up` on'}")

"""`fern context`: the systems that the operators' commands can work on."""

import click

from fern import contexts
from fern.errors import LOCAL
from fern.output import Group, json_option, print_json, print_table


@click.group(cls=Group)
def context() -> None:
    """List or show the systems that the operators' commands can work on. They are declared in FERN_CONTEXTS, by default
    ~/.config/fern/contexts.toml. `fern --context NAME` chooses one for a command, and FERN_CONTEXT for all.
    """


@context.command("ls")
@json_option
def list_contexts(as_json: bool) -> None:
    """Show the names of all contexts, and which one is chosen."""
    names = [LOCAL, *contexts.declared()]
    if as_json:
        print_json({"chosen": contexts.chosen(), "file": str(contexts.file()), "items": names})
        return
    print_table("context | chosen", ((name, "yes" if name == contexts.chosen() else None) for name in names))
    if names == [LOCAL]:
        click.echo(f"\n{contexts.file()} declares no other; docs/operations.md says how")


@context.command("show")
@click.argument("name", required=False)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show where a context leads, and whether its tokens can be read. Tokens are never printed."""
    name = name or contexts.chosen()
    if name == LOCAL:
        facts = {"context": LOCAL, "system": "the one on this machine; `fern status` shows it"}
    else:
        found = contexts.find(name)
        facts = {"context": name, "labour": found.labour, "notification": found.notification}
        facts["Pub/Sub project"] = found.pubsub_project or "none: no topology, no dead letters"
        if found.pubsub_emulator:
            facts["Pub/Sub emulator"] = found.pubsub_emulator
        for scope, secret in (
            ("read token", found.read_token),
            ("write token", found.write_token),
            ("identity token", found.identity_token),
        ):
            facts[scope] = f"{secret}: {secret.problem() or 'can be read'}" if secret else "none"
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        click.echo(f"{key:<17} {value}")

"""The `fern` command. `fern NAME` is the command `NAME` of the module `fern.commands.NAME`, imported when it is used."""

import os
from importlib import import_module

import click

from fern import contexts
from fern.command_list import COMMANDS, OPERATE, SECTIONS
from fern.errors import LOCAL


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"fern.commands.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--context", envvar="FERN_CONTEXT", metavar="NAME", help="The system to work on: see `fern context ls`.")
@click.pass_context
def main(ctx: click.Context, context: str | None) -> None:
    """Run FernLabour on this machine, watch it, break it, and look inside."""
    os.environ["FERN_CONTEXT"] = context or LOCAL  # for `Settings.load`, and for the programs of the experiments
    if contexts.chosen() == LOCAL:
        return
    if ctx.invoked_subcommand not in SECTIONS[OPERATE]:
        contexts.require_local(ctx.invoked_subcommand or "")
    click.echo(f"context: {contexts.chosen()}", err=True)

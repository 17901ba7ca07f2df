"""The `fern` command: one table of sub-commands, each loaded when it is used, so that `fern --help` stays quick."""

from importlib import import_module

import click

COMMANDS: dict[str, str] = {
    "topology": "fern.topology:topology",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run FernLabour on this machine, watch it, break it, and look inside."""

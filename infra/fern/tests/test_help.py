"""The help of every command: whole sentences, and a word about every option."""

from collections.abc import Iterator

import click
import pytest

from fern.cli import main
from fern.output import Group


def commands(group: click.Group = main, path: str = "fern") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


EVERY = dict(commands())


def test_a_group_lists_its_commands_with_whole_sentences() -> None:
    group = Group("many")
    group.add_command(click.Command("one", help="Say this, " + "and that, " * 10 + "and stop. Then more."))

    shown = " ".join(group.get_help(click.Context(group)).split())

    assert "Say this, " + "and that, " * 10 + "and stop" in shown


@pytest.mark.parametrize("command", EVERY.values(), ids=EVERY.keys())
def test_no_help_is_cut_and_every_option_is_explained(command: click.Command) -> None:
    lines = command.get_help(click.Context(command, max_content_width=80)).splitlines()

    assert [line for line in lines if line.endswith("...") and not line.startswith("Usage:")] == []
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    assert [one.name for one in options if not one.help] == []

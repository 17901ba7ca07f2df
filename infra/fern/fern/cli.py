"""The `fern` command. `fern NAME` is the command `NAME` of the module `fern.commands.NAME`, imported when it is used."""

from importlib import import_module

import click

COMMANDS = {
    "up": "Start everything and wait until it is healthy.",
    "demo": "Play one labour and watch every hop to the phones.",
    "status": "Show every process: state, pid, uptime, restarts, health.",
    "logs": "Show the logs of one process, or of all.",
    "down": "Stop everything, gracefully; data stays.",
    "reset": "Stop everything and delete all data and logs.",
    "doctor": "Look for what would keep the system from starting.",
    "kill": "Kill a process the hard way, to see the system survive it.",
    "token": "Say who you are: a bearer token for the Labour API.",
    "audit": "Account for every event: committed = published = claimed = effects = SMS.",
    "trace": "The whole journey of one event or labour, from the request to the SMS.",
    "outbox": "Events that wait or are parked: list, retry, discard.",
    "dlq": "Messages that could not be handled: list, show, redrive, discard.",
    "replay": "Publish events again, by time, labour or type; first see what would happen.",
    "retention": "Forget what is older than anyone may replay, in small steps.",
    "fault": "Break the bus or the SMS sandbox on purpose, and mend them.",
    "topology": "Topics and subscriptions: apply or show.",
    "pubsub": "The Pub/Sub emulator: durable, and breakable on purpose.",
    "sms": "The SMS sandbox that shows the phones; and messages in doubt: list, resolve.",
    "console": "The page that shows and breaks everything.",
    "chaos": "Break everything under load, from a seed, and account for every message.",
    "museum": "Put historical mistakes back in, one by one, and see each caught.",
    "quest": "Other designs and ours, side by side, against the same faults.",
}


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
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run FernLabour on this machine, watch it, break it, and look inside."""

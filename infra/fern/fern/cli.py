"""The `fern` command: one table of sub-commands, each loaded when it is used, so that `fern --help` stays quick."""

from importlib import import_module

import click

# name: (module:attribute, one line for --help)
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("fern.commands.up:up", "Start everything and wait until it is healthy."),
    "demo": ("fern.commands.demo:demo", "Play one labour and watch every hop to the phones."),
    "status": ("fern.commands.operate:status", "Show every process: state, pid, uptime, restarts, health."),
    "logs": ("fern.commands.operate:logs", "Show the logs of one process, or of all."),
    "down": ("fern.commands.operate:down", "Stop everything, gracefully; data stays."),
    "reset": ("fern.commands.operate:reset", "Stop everything and delete all data and logs."),
    "doctor": ("fern.commands.doctor:doctor", "Look for what would keep the system from starting."),
    "kill": ("fern.commands.operate:kill", "Kill a process the hard way, to see the system survive it."),
    "token": ("fern.commands.token:token", "Say who you are: a bearer token for the Labour API."),
    "audit": (
        "fern.audit.auditor:audit_command",
        "Account for every event: committed = published = claimed = effects = SMS.",
    ),
    "trace": ("fern.commands.trace:trace", "The whole journey of one event or labour, from the request to the SMS."),
    "outbox": ("fern.commands.outbox:outbox", "Events that wait or are parked: list, retry, discard."),
    "dlq": ("fern.commands.dlq:dlq", "Messages that could not be handled: list, show, redrive, discard."),
    "replay": (
        "fern.commands.replay:replay",
        "Publish events again, by time, labour or type; first see what would happen.",
    ),
    "retention": ("fern.commands.replay:retention", "Forget what is older than anyone may replay, in small steps."),
    "fault": ("fern.commands.fault:fault", "Break the bus or the SMS sandbox on purpose, and mend them."),
    "topology": ("fern.topology:topology", "Topics and subscriptions: apply or show."),
    "pubsub": ("pubsub_emulator.command:pubsub", "The Pub/Sub emulator: durable, and breakable on purpose."),
    "sms": ("fern.commands.sms:sms", "The SMS sandbox that shows the phones; and messages in doubt: list, resolve."),
    "console": ("fern.console.server:console", "The page that shows and breaks everything."),
    "chaos": (
        "fern.commands.experiments:chaos",
        "Break everything under load, from a seed, and account for every message.",
    ),
    "museum": ("fern.commands.experiments:museum", "Put historical mistakes back in, one by one, and see each caught."),
    "quest": ("fern.commands.experiments:quest", "Other designs and ours, side by side, against the same faults."),
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run FernLabour on this machine, watch it, break it, and look inside."""

"""The `fern` command. `fern NAME` is the command `NAME` of the module `fern.commands.NAME`, imported when it is used."""

from importlib import import_module

import click

COMMANDS = {
    "up": "Start everything and wait until it is healthy.",
    "demo": "Play one labour and watch every hop to the phones.",
    "status": "Show every process: state, pid, uptime, restarts, health.",
    "logs": "Show the logs of one process, or of all.",
    "down": "Stop everything gracefully. The data is kept.",
    "reset": "Stop everything and delete all data and logs.",
    "doctor": "Look for problems that would keep the system from starting.",
    "kill": "Kill a process with SIGKILL. Its supervisor starts it again.",
    "scale": "Run more, or fewer, of a process: fern scale notification-consumer=3.",
    "drain": "Handle the messages that wait for a consumer, once, as a scheduled job does.",
    "token": "Print an access token for the Labour API, for any user name.",
    "audit": "Account for every event: committed = published = claimed = effects = SMS.",
    "trace": "Show every hop of an event, from the request to the SMS; or the events of a labour.",
    "outbox": "Events that wait or are parked: list, retry, discard.",
    "dlq": "Messages that a consumer could not handle: list, show, redrive, discard.",
    "replay": "Publish events again, by time, labour or type, after showing the effect.",
    "retention": "Delete claims and published events that are too old to be replayed.",
    "statistics": "Balances of the labours' statistics: verify against their postings, rebuild.",
    "fault": "Inject faults into the bus or the SMS sandbox, and clear them.",
    "topology": "Topics and subscriptions: apply, show, or set how they are delivered.",
    "contracts": "The schemas of the events and the pages that describe them: write.",
    "pubsub": "The durable Pub/Sub emulator: serve, or compare with Google's.",
    "sms": "The SMS sandbox that shows the phones; and messages in doubt: list, resolve.",
    "console": "The web page that drives a labour, shows every stage live, and injects faults.",
    "chaos": "Break everything under load, from a seed, and account for every message.",
    "soak": "Run a steady load, with faults, and say whether anything grows.",
    "museum": "Put common mistakes back in, one by one, and show that each is detected.",
    "quest": "Run other designs and ours, side by side, against the same faults.",
    "bench": "Measure every stage beside other designs and the limits of this machine.",
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

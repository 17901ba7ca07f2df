"""`pubsub-emulator`: the emulator from the command line."""

import asyncio
import gc
import logging
import sys
from importlib.util import find_spec, module_from_spec
from pathlib import Path

import click

from pubsub_emulator.errors import CannotStart
from pubsub_emulator.process import run

log = logging.getLogger(__name__)

_GRACE_SECONDS = 5.0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A Pub/Sub emulator that is durable and can fail on purpose."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    required=True,
    help="gRPC port, for PUBSUB_EMULATOR_HOST; 0 picks a free one.",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="HTTP port for health, faults and keys; 0, the default, picks a free one.",
)
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder of its database."
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    help="A name of this host, beside localhost, for the HTTP port; may be repeated.",
)
@click.option("--issuer", help="Issuer of push tokens: the URL at which receivers reach the HTTP port, if it differs.")
def serve(
    host: str, port: int, http_port: int, data_dir: Path, allow_hosts: tuple[str, ...], issuer: str | None
) -> None:
    """Serve in the foreground until SIGTERM. Every answered request is on disk.

    Exits with 3 when another emulator uses the data folder, with 4 when the folder is damaged, and with 10 when a port is taken.
    """
    skip_clients()
    from pubsub_emulator.server import running  # only now, so that it is loaded without the clients

    # A backlog is many small objects without cycles; looking for cycles every 700 allocations costs a quarter of the rate.
    gc.set_threshold(100_000, 20, 100)

    async def serve_until(stop: asyncio.Event) -> None:
        async with running(data_dir, port, http_port, host, _GRACE_SECONDS, allow_hosts, issuer) as emulator:
            catalog, faults = emulator.broker.catalog, emulator.broker.faults
            fields = {
                "grpc": emulator.target,
                "http": emulator.http_url,
                "data_dir": str(data_dir),
                "topics": len(catalog.topics),
                "subscriptions": len(catalog.subscriptions),
                "unacked": sum(subscription.unacked for subscription in catalog.subscriptions.values()),
            }
            log.info("ready", extra=fields)
            if faults.active:
                on = {fault: settings.to_json() for fault, settings in faults.on.items()}
                clear = f"curl -X DELETE {emulator.http_url}/faults"
                log.warning("faults are on", extra={"faults": on, "clear": clear})
            await stop.wait()
            log.info("stopping")

    try:
        run(serve_until)
    except CannotStart as error:
        click.echo(f"error: {error}", err=True)
        if error.command:
            click.echo(f"try:   {error.command}", err=True)
        sys.exit(error.exit_code)


def skip_clients() -> None:
    """Put an empty package in the place of `google.pubsub_v1`, so that only its sub-modules are loaded. Only for a process of its
    own: it cannot use the clients afterwards.

    Importing it whole also imports two clients, their transports and the libraries for credentials and HTTP below them, which is
    half of the time that the emulator would need to start.
    """
    spec = find_spec("google.pubsub_v1")
    if spec is not None and spec.name not in sys.modules:
        sys.modules[spec.name] = module_from_spec(spec)


@main.command()
@click.option("--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Rounds of the comparison.")
@click.option(
    "--messages",
    type=click.IntRange(500, 1_000_000),
    default=40_000,
    show_default=True,
    help="Messages published in each round.",
)
@click.option(
    "--singles",
    type=click.IntRange(1, 10_000),
    default=30,
    show_default=True,
    help="Messages for the latency, in each round.",
)
def bench(rounds: int, messages: int, singles: int) -> None:
    """Compare with Google's emulator, side by side in one run."""
    from pubsub_emulator import bench as benchmark
    from pubsub_emulator import google

    jar = google.find()
    if jar is None:
        click.echo("error: Google's emulator is not installed, or Java is missing.", err=True)
        click.echo("try:   gcloud components install pubsub-emulator", err=True)
        sys.exit(1)
    benchmark.run(jar, rounds, messages, singles)

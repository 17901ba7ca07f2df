"""`sms-sandbox`: the sandbox from the command line."""

import sys
from pathlib import Path

import click

from sms_sandbox.errors import PortInUse
from sms_sandbox.process import run
from sms_sandbox.sandbox import Settings
from sms_sandbox.server import bind, serve_until


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A stand-in for Twilio's Messages API that shows the phones and can fail on purpose."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port to listen on; 0 picks a free one.")
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder of its database."
)
@click.option(
    "--callback-retries",
    type=click.IntRange(0, 10),
    default=1,
    show_default=True,
    help="Retries of a callback that failed.",
)
@click.option("--pace", type=click.FloatRange(0, 60), default=0.4, show_default=True, help="Seconds between statuses.")
@click.option("--inbound-url", envvar="SMS_INBOUND_URL", help="URL to which replies of phones are posted.")
@click.option("--auth-token", envvar="TWILIO_AUTH_TOKEN", help="The only accepted token. [default: any token]")
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    help="A host name beside localhost that requests may name and callbacks may go to; may be repeated.",
)
def serve(
    host: str,
    port: int,
    data_dir: Path,
    callback_retries: int,
    pace: float,
    inbound_url: str | None,
    auth_token: str | None,
    allow_hosts: tuple[str, ...],
) -> None:
    """Serve Twilio's Messages API and the page with the phones, in the foreground, until SIGTERM.

    Exits with 10 when the port is taken.
    """
    try:
        listener = bind(host, port)
    except PortInUse as error:
        click.echo(f"error: {error}\ntry:   lsof -i :{port}", err=True)
        sys.exit(10)
    settings = Settings(data_dir, auth_token or None, pace, callback_retries, inbound_url, allow_hosts)
    run(lambda stop: serve_until(stop, settings, listener))

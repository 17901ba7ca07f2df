"""`fern sms`: the SMS sandbox from the command line."""

import os
from pathlib import Path

import click

from fern.errors import PortTaken
from servicekit.process import run
from sms_sandbox.sandbox import Settings
from sms_sandbox.server import bind, serve_until


@click.group()
def sms() -> None:
    """The SMS sandbox, a stand-in for Twilio that shows the phones; and the ledger of what was sent."""


@sms.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port to listen on; 0 picks a free one.")
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), required=True, help="Where its state lives."
)
@click.option("--callback-retries", type=click.IntRange(0, 10), default=1, show_default=True)
@click.option("--pace", type=click.FloatRange(0, 60), default=0.4, show_default=True, help="Seconds between statuses.")
@click.option("--inbound-url", envvar="SMS_INBOUND_URL", help="Where replies of phones are posted.")
@click.option("--auth-token", envvar="TWILIO_AUTH_TOKEN", help="The only token accepted; without it, any is.")
def serve(
    host: str,
    port: int,
    data_dir: Path,
    callback_retries: int,
    pace: float,
    inbound_url: str | None,
    auth_token: str | None,
) -> None:
    """Serve Twilio's Messages API and the page with the phones, in the foreground."""
    try:
        listener = bind(host, port)
    except OSError as error:
        problem = f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}."
        raise PortTaken(problem, command=f"lsof -i :{port}") from error
    settings = Settings(data_dir, auth_token or None, pace, callback_retries, inbound_url)
    run("sms-sandbox", lambda stop: serve_until(stop, settings, listener))

"""`fern fault`: what goes wrong on purpose, on the bus and on the SMS sandbox, while they run.

Both serve the same four calls over HTTP, so this knows neither their faults nor their parameters: `fern fault ls` asks them.
"""

import json
from typing import Any, Final

import click
import httpx
from rich.table import Table

from fern.errors import FernError, NotRunning
from fern.runtime.progress import make_console
from fern.settings import Settings

TARGETS: Final = {"bus": "pubsub-http", "sms": "sms-sandbox"}
_TIMEOUT_SECONDS: Final = 5.0

target_argument = click.argument("target", type=click.Choice(list(TARGETS)))


@click.group()
def fault() -> None:
    """Break the bus or the SMS sandbox on purpose, and mend them."""


@fault.command("ls")
@click.argument("target", type=click.Choice(list(TARGETS)), required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_faults(target: str | None, as_json: bool) -> None:
    """Show the faults there are, and which are on."""
    items = [
        {"target": name, **item} for name in ([target] if target else TARGETS) for item in _call("GET", name)["items"]
    ]
    if as_json:
        click.echo(json.dumps({"items": items}, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("target", "fault", "on", "settings", "what happens"):
        table.add_column(column, no_wrap=column != "what happens")
    for item in items:
        settings = " ".join(f"{key}={value}" for key, value in _settings(item).items()) if item["active"] else ""
        table.add_row(
            item["target"], item["name"], "[red]on[/]" if item["active"] else "", settings, item["description"]
        )
    make_console().print(table)


@fault.command("set")
@target_argument
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--rate", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="How often it strikes; 0 clears it."
)
def set_fault(target: str, name: str, settings: tuple[str, ...], rate: float) -> None:
    """Switch a fault on.

    For example: fern fault set bus delay --rate 0.3 seconds=2 topic=labour.begun
    """
    if not rate:
        _call("DELETE", target, name)
        click.echo(f"{target}: {name} is off")
        return
    item = _call("PUT", target, name, {"rate": rate, **dict(_setting(text) for text in settings)})
    click.echo(f"{target}: {name} is on, " + ", ".join(f"{key} {value}" for key, value in _settings(item).items()))


@fault.command("clear")
@click.argument("target", type=click.Choice(list(TARGETS)), required=False)
@click.argument("name", required=False)
def clear_faults(target: str | None, name: str | None) -> None:
    """Switch one fault off, or all of a target, or all."""
    for each in [target] if target else TARGETS:
        _call("DELETE", each, name)
        click.echo(f"{each}: {name or 'every fault'} is off")


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _settings(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("target", "name", "description", "active")}


def _call(method: str, target: str, name: str | None = None, body: dict[str, Any] | None = None) -> dict[str, Any]:
    url = f"{Settings.load().url(TARGETS[target])}/faults" + (f"/{name}" if name else "")
    try:
        response = httpx.request(method, url, json=body, timeout=_TIMEOUT_SECONDS)
    except httpx.HTTPError as error:
        raise NotRunning(f"the {target} does not answer at {url}: {error}.", command="make up") from error
    if response.is_error:
        detail = response.json().get("detail") if "json" in response.headers.get("content-type", "") else response.text
        raise FernError(f"{target}: {detail}", command=f"fern fault ls {target}")
    answer: dict[str, Any] = response.json() if response.content else {}
    return answer

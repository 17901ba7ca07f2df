"""`fern fault`: injects faults into the bus and the SMS sandbox while they run.

Both serve the same routes, so this module knows neither their faults nor the settings of a fault: `fern fault ls` asks them.
"""

import json
from typing import Any

import click

from fern.client import FAULT_TARGETS, RequestRefused, call
from fern.errors import FernError
from fern.output import Group, json_option, print_json, print_table

target_argument = click.argument("target", type=click.Choice(FAULT_TARGETS))
optional_target = click.argument("target", type=click.Choice(FAULT_TARGETS), required=False)


@click.group(cls=Group)
def fault() -> None:
    """Inject faults into the bus or the SMS sandbox, and clear them."""


@fault.command("ls")
@optional_target
@json_option
def list_faults(target: str | None, as_json: bool) -> None:
    """Show every fault, and which are on."""
    targets = [target] if target else FAULT_TARGETS
    items = [{"target": name, **item} for name in targets for item in _call("GET", name)["items"]]
    if as_json:
        print_json({"items": items})
        return
    rows = []
    for item in items:
        settings = " ".join(f"{key}={value}" for key, value in _settings(item).items())
        on = ("[red]on[/]", settings) if item["active"] else ("", "")
        rows.append((item["target"], item["name"], *on, item["description"]))
    print_table("target | fault | on | settings | what happens", rows)


@fault.command("set")
@target_argument
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--rate", type=click.FloatRange(0, 1), default=1.0, show_default=True, help="Share of calls; 0 clears the fault."
)
def set_fault(target: str, name: str, settings: tuple[str, ...], rate: float) -> None:
    """Switch a fault on.

    For example: fern fault set bus delay --rate 0.3 seconds=2 topic=labour.begun
    """
    if not rate:
        _call("DELETE", target, name)
        click.echo(f"{target}: {name} is off")
        return
    item = _call("PUT", target, name, json={"rate": rate, **dict(_setting(text) for text in settings)})
    click.echo(f"{target}: {name} is on, " + ", ".join(f"{key} {value}" for key, value in _settings(item).items()))


@fault.command("clear")
@optional_target
@click.argument("name", required=False)
def clear_faults(target: str | None, name: str | None) -> None:
    """Switch off one fault, all of a target, or all."""
    for each in [target] if target else FAULT_TARGETS:
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
    """The settings that have a value. A fault without `times` has no limit."""
    hidden = ("target", "name", "description", "active")
    return {key: value for key, value in item.items() if key not in hidden and value is not None}


def _call(method: str, target: str, name: str | None = None, **body: Any) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = call(target, method, "/faults" + (f"/{name}" if name else ""), **body)
        return answer
    except RequestRefused as refused:
        raise FernError(f"{target}: {refused.message}", command=f"fern fault ls {target}") from None

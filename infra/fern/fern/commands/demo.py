"""`fern demo`: watch one labour become texts on two phones, and count them."""

import json
from collections import Counter
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from fern.demo import NOTIFYING, Hop, Story, Text
from fern.errors import FernError
from fern.runtime.progress import make_console
from fern.settings import Settings

COLOURS = {"committed": "cyan", "in the outbox": "blue", "published": "magenta", "claimed": "yellow"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--timeout", default=30.0, show_default=True, help="Seconds an event may take until the last phone.")
def demo(as_json: bool, timeout: float) -> None:
    """Play one labour and watch every hop to the phones.

    A labour is planned, two people subscribe, it begins, it completes. Each line is one hop of one event with the time
    since the request. Ends with exit code 1 if anyone got a text twice or not at all.
    """
    story = Story(Settings.load(), timeout)
    console = make_console(quiet=as_json)
    hops: list[Hop] = []
    for hop in story.play():
        _print_hop(console, hop, new_scene=not hops or hops[-1].scene != hop.scene)
        hops.append(hop)
    texts = story.texts()
    _print_texts(console, texts)
    problem = problem_with(story.people, texts)
    if as_json:
        result = {
            "labour_id": story.labour_id,
            "hops": [asdict(hop) for hop in hops],
            "texts": [asdict(text) for text in texts],
            "problem": problem,
        }
        click.echo(json.dumps(result, indent=2))
    if problem:
        raise FernError(problem, command="fern logs notification-dispatcher")
    console.print(f"\n{len(texts)} texts, each exactly once. The phones: {story.settings.url('sms-sandbox')}")


def problem_with(people: dict[str, str], texts: list[Text]) -> str | None:
    """Everyone gets one text for each event that notifies, and nothing else."""
    got = Counter((text.person, text.event_type) for text in texts)
    for person in people:
        for event_type in NOTIFYING:
            if (count := got.pop((person, event_type), 0)) != 1:
                return f"{person} got {count or 'no'} texts about {event_type} instead of one."
    for (person, _), count in got.items():
        return f"{person} got {count} more text(s) than there are notifications."
    return None


def _print_hop(console: Console, hop: Hop, *, new_scene: bool) -> None:
    if new_scene:
        console.print(f"\n[bold]{hop.scene}[/]")
    what = f"{hop.hop} to {hop.person}" if hop.person else hop.hop
    colour = COLOURS.get(hop.hop, "red" if "refused" in hop.hop else "green")
    console.print(f"  [{colour}]{what:<24}[/] [dim]{hop.after_ms:+6.0f} ms   {hop.event_type or ''}[/]")


def _print_texts(console: Console, texts: list[Text]) -> None:
    table = Table(title="\nWho got which text", title_justify="left", box=None, pad_edge=False)
    for column in ("who", "phone", "text"):
        table.add_column(column, no_wrap=column != "text")
    for text in texts:
        table.add_row(text.person, text.phone, text.body)
    console.print(table)

"""`fern demo`: watch one labour become texts on two phones, and count them."""

from collections import Counter
from dataclasses import asdict

import click
from rich.console import Console

from fern.demo import CONSENT_REQUESTED, NOTIFYING, Demo, Hop, Text
from fern.errors import FernError
from fern.output import json_option, make_console, print_json, print_table
from fern.settings import Settings

COLOURS = {"committed": "cyan", "in the outbox": "blue", "published": "magenta", "claimed": "yellow"}


@click.command()
@json_option
@click.option("--timeout", default=30.0, show_default=True, help="Seconds an event may take to reach the last phone.")
def demo(as_json: bool, timeout: float) -> None:
    """Play one labour and watch every hop to the phones.

    A labour is planned, two people subscribe, it begins, it completes. Each line is one hop of one event with the time
    since the request. Ends with exit code 1 if a person got a text twice or not at all.
    """
    demo = Demo(Settings.load(), timeout)
    console = make_console(quiet=as_json)
    hops: list[Hop] = []
    for hop in demo.play():
        _print_hop(console, hop, new_scene=not hops or hops[-1].scene != hop.scene)
        hops.append(hop)
    texts = demo.texts()
    problem = problem_with(demo.people, texts)
    if as_json:
        shown = {"hops": [asdict(hop) for hop in hops], "texts": [asdict(text) for text in texts]}
        print_json({"labour_id": demo.labour_id, **shown, "problem": problem})
    else:
        click.echo("\nWho got which text")
        print_table("who | phone | text", ((text.person, text.phone, text.body) for text in texts))
    if problem:
        raise FernError(problem, command="fern logs notification-dispatcher")
    console.print(f"\n{len(texts)} texts, each exactly once. The phones: {demo.settings.url('sms-sandbox')}")


def problem_with(people: dict[str, str], texts: list[Text]) -> str | None:
    """What is wrong with the texts, or None. A person must get one for each event that notifies, and at most one question."""
    got = Counter((text.person, text.event_type) for text in texts)
    for person in people:
        for event_type in NOTIFYING:
            if (count := got.pop((person, event_type), 0)) != 1:
                return f"{person} got {count or 'no'} texts about {event_type} instead of one."
        if got[person, CONSENT_REQUESTED] == 1:
            del got[person, CONSENT_REQUESTED]
    for (person, _), count in got.items():
        return f"{person} got {count} more text(s) than there are notifications."
    return None


def _print_hop(console: Console, hop: Hop, *, new_scene: bool) -> None:
    if new_scene:
        console.print(f"\n[bold]{hop.scene}[/]")
    what = f"{hop.hop} to {hop.person}" if hop.person else hop.hop
    colour = COLOURS.get(hop.hop, "red" if "refused" in hop.hop else "green")
    console.print(f"  [{colour}]{what:<24}[/] [dim]{hop.after_ms:+6.0f} ms   {hop.event_type or ''}[/]")

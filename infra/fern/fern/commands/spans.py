"""`fern spans`: the traces of a labour or an event, as the processes sent them to the console."""

from typing import Any
from uuid import UUID

import click

from fern.client import call
from fern.errors import FernError
from fern.output import json_option, print_json
from fern.settings import Settings

# The attributes of a span that are shown, and the words for them.
_FACTS = {
    "messaging.batch.message_count": "messages",
    "fern.claims.already_completed": "handled before",
    "fern.claims.held_elsewhere": "held elsewhere",
    "fern.claims.early": "early",
    "fern.sms.attempt": "attempt",
    "fern.sms.outcome": "outcome",
    "fern.sms.found": "found",
    "http.response.status_code": "status",
    "error.type": "error",
}


@click.command()
@click.argument("identifier", metavar="EVENT_OR_LABOUR_ID")
@json_option
def spans(identifier: str, as_json: bool) -> None:
    """Show the spans of a labour or an event, process by process.

    A line is one span: when it began, counted from the start of the trace, how long it took, the process with its pid, and what
    it did. The console keeps the last few hundred traces in memory, so it must have been running, and not restarted since.
    """
    traces = find(Settings.load(), identifier)
    if as_json:
        print_json(traces)
        return
    click.echo("\n\n".join(_text(one) for one in traces))


def find(settings: Settings, identifier: str) -> list[dict[str, Any]]:
    """The oldest trace comes first."""
    try:
        wanted = str(UUID(identifier))
    except ValueError:
        raise FernError(f"{identifier!r} is not the id of an event or a labour.", command="fern outbox ls") from None
    if settings.mode == "docker":
        what = "containers cannot send their traces to the console, which runs outside of Docker."
        raise FernError(what, command=f"fern trace {wanted}")
    console = settings.url("console")
    for name in ("labour_id", "event_id"):
        if found := call(console, "GET", f"/api/traces?{name}={wanted}", settings=settings):
            return [call(console, "GET", f"/api/traces/{one['id']}", settings=settings) for one in reversed(found)]
    raise FernError(f"the console has no trace of {wanted}.", command=f"fern trace {wanted}")


def _text(trace: dict[str, Any]) -> str:
    spans = trace["spans"]
    processes = [f"{span['process']} ({span['instance'].rpartition(':')[2]})" for span in spans]
    width = max(map(len, processes))
    return "\n".join(
        (f"trace {trace['id']}", *(_line(span, process, width) for span, process in zip(spans, processes, strict=True)))
    )


def _line(span: dict[str, Any], process: str, width: int) -> str:
    facts = [f"{word} {span['attributes'][name]}" for name, word in _FACTS.items() if span["attributes"].get(name)]
    took = f"{span['duration_ms']:,.1f} ms"
    after = f"+{span['start_ms']:,.0f} ms"
    return f"{after:>12}  {took:>10}  {process:<{width}}  {span['name']}  {', '.join(facts)}".rstrip()

"""The page of all events: every topic, who sends and receives it, and its messages, from the AsyncAPI document.

The page is one piece of HTML without a script of its own, so the browser's search finds everything on it.
"""

import re
from html import escape
from typing import Any

from litestar import Response, get

from fern.asyncapi import document
from fern.console.headers import HEADERS
from fern.event_pages import fields

Object = dict[str, Any]


@get("/asyncapi.json")
async def show_document() -> Response[Object]:
    return Response(document(), headers=HEADERS)


@get("/events")
async def show_events() -> Response[str]:
    return Response(page(document()), media_type="text/html", headers=HEADERS)


def page(events: Object) -> str:
    channels = events["channels"]
    contents = "".join(f'<li><a href="#{escape(topic)}">{escape(topic)}</a></li>' for topic in channels)
    return f"""<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Events · FernLabour</title>
  <link rel="icon" href="/page/fern.svg">
  <link rel="stylesheet" href="/page/console.css">
  <link rel="stylesheet" href="/page/events.css">
  <script src="/page/theme.js"></script>
</head>
<body>
  <a class="skip" href="#events">Skip to the events</a>
  <header class="top">
    <img src="/page/fern.svg" alt="" width="30" height="30">
    <div class="name"><h1>Events</h1><p>{_html(events["info"]["description"])}</p></div>
    <a href="/asyncapi.json">asyncapi.json</a>
    <a href="/">Console</a>
    <button id="theme" type="button" class="quiet"></button>
  </header>
  <nav aria-label="Topics"><ul>{contents}</ul></nav>
  <main id="events" tabindex="-1">
{"".join(_topic(topic, channel, events) for topic, channel in channels.items())}
  </main>
</body>
</html>
"""


def _topic(topic: str, channel: Object, events: Object) -> str:
    operations = {
        name.partition(".")[0]: one
        for name, one in events["operations"].items()
        if one["channel"]["$ref"] == f"#/channels/{topic}"
    }
    sender = next(service for service, one in operations.items() if one["action"] == "send")
    received = [
        f"{escape(service)} <small>subscription <code>{escape(one['x-subscription'])}</code></small>"
        for service, one in operations.items()
        if one["action"] == "receive"
    ]
    return f"""<section id="{escape(topic)}" aria-labelledby="{escape(topic)}-title">
<h2 id="{escape(topic)}-title">{escape(topic)}</h2>
<dl>
<dt>sent by</dt><dd>{escape(sender)}</dd>
<dt>received by</dt><dd>{"<br>".join(received) or "no service yet"}</dd>
<dt>dead letters</dt><dd><code>{escape(channel["x-dead-letter-topic"])}</code></dd>
</dl>
{"".join(_message(name, events["components"]) for name in channel["messages"])}</section>
"""


def _message(name: str, components: Object) -> str:
    message, data = components["messages"][name], components["schemas"][name]
    (example,) = message["examples"]
    paragraphs = "".join(f"<p>{_html(text)}</p>" for text in re.split(r"\n\s*\n", message["summary"]))
    return f"""<article aria-labelledby="{escape(name)}">
<h3 id="{escape(name)}">{escape(name)}</h3>
{paragraphs}
<div class="tables">{_table("Data", data, example["payload"])}{_table("Headers", message["headers"], example["headers"])}</div>
</article>
"""


def _table(title: str, schema: Object, example: Object) -> str:
    rows = "".join(
        f'<tr><th scope="row"><code>{escape(name)}</code></th><td>{_html(", ".join([kind, *limits]))}</td>'
        f"<td><code>{escape(str(example[name]))}</code></td></tr>"
        for name, kind, limits in fields(schema)
    )
    return f"""<table><caption>{title}</caption>
<thead><tr><th scope="col">name</th><th scope="col">type</th><th scope="col">example</th></tr></thead>
<tbody>{rows}</tbody></table>"""


def _html(markdown: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(" ".join(markdown.split())))

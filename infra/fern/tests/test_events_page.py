"""The console's page of events has all that the AsyncAPI document has."""

from html import unescape

import pytest

from fern.asyncapi import document
from fern.console.events import page

DOCUMENT = document()
MESSAGES = DOCUMENT["components"]["messages"]


def article(name: str) -> str:
    """The text of one message of the page, between its heading and the end."""
    return unescape(page(DOCUMENT).partition(f'<h3 id="{name}">')[2].partition("</article>")[0])


@pytest.mark.parametrize("name", MESSAGES)
def test_every_message_is_on_the_page_with_its_summary_and_an_example_of_each_header_and_field(name: str) -> None:
    text = article(name)

    (example,) = MESSAGES[name]["examples"]
    assert text.startswith(name)
    assert MESSAGES[name]["summary"].split("`")[0].split("\n")[0] in text
    for values in (example["headers"], example["payload"]):
        for field, value in values.items():
            row = text.partition(f'<th scope="row"><code>{field}</code>')[2].partition("</tr>")[0]
            assert f"<code>{value}</code>" in row, field


def test_every_operation_is_on_the_page_in_the_section_of_its_topic() -> None:
    text = page(DOCUMENT)

    for name, operation in DOCUMENT["operations"].items():
        service, action, topic = name.split(".", 2)
        section = text.partition(f'<section id="{topic}"')[2].partition("</section>")[0]
        if action == "send":
            assert f"<dt>sent by</dt><dd>{service}</dd>" in section
        else:
            assert f"<code>{operation['x-subscription']}</code>" in section


def test_what_is_optional_constant_or_limited_is_said() -> None:
    text = article("labour.completed.v2")

    assert "UUID</td>" in text
    assert "string or null, 1 to 100 characters" in text
    assert "time (RFC 3339)" in text
    assert "string, constant</td><td><code>1.0</code>" in text
    assert "string, optional</td><td><code>00000000000000000007" in text


def test_text_of_the_document_is_not_markup() -> None:
    message = MESSAGES["labour.begun.v1"]
    changed = {**message, "summary": "<script>alert(1)</script>"}
    components = {**DOCUMENT["components"], "messages": {**MESSAGES, "labour.begun.v1": changed}}

    assert "<script>alert" not in page({**DOCUMENT, "components": components})

"""docs/patterns.md answers the four questions for every handler that the system has."""

import re
from pathlib import Path

from fern.topology import Declared
from notification.http.push import PushController
from notification.http.webhooks import TwilioController

PAGE = Path(__file__).parents[2] / "docs" / "patterns.md"
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", flags=re.MULTILINE)


def handlers() -> set[str]:
    """Every subscription of a consumer, and every route by which another system calls ours."""
    subscriptions = {f"{name} ← {topic}" for topic, names in Declared.load().consumers().items() for name in names}
    routes = {
        f"POST {controller.path}{path if path != '/' else ''}"
        for controller in (TwilioController, PushController)
        for handler in controller(owner=None).get_route_handlers()  # type: ignore[arg-type]
        for path in handler.paths
    }
    return subscriptions | routes


def answered() -> set[str]:
    found = set[str]()
    for handler, *answers in ROW.findall(PAGE.read_text()):
        assert all(answers), handler
        match re.findall(r"`([^`]+)`", handler):
            case [consumer, *topics] if "←" in handler:
                found |= {f"{consumer} ← {topic}" for topic in topics}
            case [route] if route.startswith("POST "):
                found.add(route)
            case _:
                pass  # of the table beside it, which is not about events
    return found


def test_every_handler_has_its_row_and_every_row_its_handler() -> None:
    assert answered() == handlers()

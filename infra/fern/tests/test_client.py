"""Which listener a request of the `fern` command goes to, and with which token."""

from pathlib import Path

import pytest

from fern.client import _Call
from fern.settings import OPERATOR_READ_TOKEN, OPERATOR_WRITE_TOKEN, Settings

HERE = Settings(8400, Path("/nowhere"))


@pytest.mark.parametrize(
    ("api", "method", "url", "token"),
    [
        ("labour", "GET", "http://127.0.0.1:8407/x", OPERATOR_READ_TOKEN),
        ("labour", "POST", "http://127.0.0.1:8407/x", OPERATOR_WRITE_TOKEN),
        ("notification", "GET", "http://127.0.0.1:8408/x", OPERATOR_READ_TOKEN),
        ("sms", "POST", "http://127.0.0.1:8403/x", None),
    ],
)
def test_without_a_user_a_service_is_asked_as_an_operator_who_may_no_more_than_needed(
    api: str, method: str, url: str, token: str | None
) -> None:
    request = _Call(HERE, api, method, "/x").request

    assert request["url"] == url
    assert request["headers"] == ({"Authorization": f"Bearer {token}"} if token else {})


def test_with_a_user_the_public_listener_is_asked_in_the_users_name() -> None:
    request = _Call(HERE, "labour", "POST", "/x", user="ada").request

    assert request["url"] == "http://127.0.0.1:8401/x"
    assert OPERATOR_WRITE_TOKEN not in str(request["headers"])

"""Calls to the services' operations routes, with errors that a person can act on."""

from typing import Any

import httpx

from fern.errors import FernError, NotRunning
from fern.settings import OPERATIONS_TOKEN, Settings


def call(api: str, method: str, path: str, *, settings: Settings | None = None, **arguments: Any) -> Any:
    """The answer's JSON. `api` is `labour-api` or `notification-api`, of the local system unless other settings are given."""
    headers = {"Authorization": f"Bearer {OPERATIONS_TOKEN}"}
    url = (settings or Settings.load()).url(api) + path
    try:
        answer = httpx.request(method, url, headers=headers, timeout=10, **arguments)
    except httpx.TransportError as error:
        raise NotRunning(f"{api} does not answer: {error}", command="fern up") from None
    if answer.is_error:
        raise Refused(api, answer)
    return answer.json()


class Refused(FernError):
    def __init__(self, api: str, answer: httpx.Response) -> None:
        is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
        super().__init__(answer.json()["detail"] if is_problem else f"{api} answered with {answer.status_code}.")
        self.status = answer.status_code

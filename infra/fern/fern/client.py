"""Calls to the services' operations routes, with errors that a person can act on, and progress where it takes long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fern.errors import FernError, NotRunning
from fern.settings import OPERATIONS_TOKEN, Settings

APIS = {"labour": "labour-api", "notification": "notification-api"}
TRIES = 5


def call(api: str, method: str, path: str, *, settings: Settings | None = None, **arguments: Any) -> Any:
    """The answer's JSON. `api` is `labour-api` or `notification-api`, of the local system unless other settings are given; one
    that is busy just now is asked again.
    """
    headers = {"Authorization": f"Bearer {OPERATIONS_TOKEN}"}
    url = (settings or Settings.load()).url(api) + path
    for attempt in range(1, TRIES + 1):
        try:
            answer = _client().request(method, url, headers=headers, **arguments)
        except httpx.TransportError as error:
            raise NotRunning(f"{api} does not answer: {error}", command="fern up") from None
        if answer.status_code != 503 or attempt == TRIES:
            break
        time.sleep(1)
    if answer.is_error:
        raise Refused(api, answer)
    return answer.json()


@cache
def _client() -> httpx.Client:
    """One for all calls: making one costs more than many of them."""
    return httpx.Client(timeout=20, trust_env=False)


def in_batches(api: str, path: str, selection: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Calls a route that handles one batch a call, until nothing is left."""
    after: int | None = 0
    while after is not None:
        batch = call(api, "POST", path, json={**selection, "after": after})
        yield batch["items"]
        after = batch["next"]


@contextmanager
def counting(title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Shows how much is done, on standard error, in a terminal only: what a command says at the end is the same everywhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)


class Refused(FernError):
    def __init__(self, api: str, answer: httpx.Response) -> None:
        is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
        problem = answer.json() if is_problem else {"detail": f"{api} answered with {answer.status_code}."}
        super().__init__(problem["detail"])
        self.status, self.problem = answer.status_code, problem

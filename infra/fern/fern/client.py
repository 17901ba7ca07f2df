"""Every HTTP request of the `fern` command: to the two services, to the bus and to the SMS sandbox.

`call` serves the commands, `AsyncClient` the console and the audit. Both raise `NotRunning` if an API does not answer, and
`RequestRefused` if it answers with an error. Before that they repeat the request for `patience` seconds, where it is safe:

- after 503 (overload, or no database), every request of the operator: all these routes may be called twice;
- after 503, another server error, a lost connection (locally only while the system is up), or 409 with Retry-After (an earlier
  attempt is still being processed): a GET, and a request with an idempotency key.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Self

import httpx

from fern.errors import FernError, NotRunning, OnlyLocal
from fern.settings import OPERATOR_READ_TOKEN, OPERATOR_WRITE_TOKEN, SERVICES, Settings
from fern.tokens import make_token

APIS = {"labour": "labour-api", "notification": "notification-api", "bus": "pubsub-http", "sms": "sms-sandbox"}
FAULT_TARGETS = ("bus", "sms")  # the APIs that have /faults
PATIENCE_SECONDS = 5.0
PAUSE_SECONDS = 0.25  # between two attempts
PROBE_SECONDS = 2.0
CLAIMS_AT_ONCE = 100  # event ids in one query


class RequestRefused(FernError):
    """An API answered with an error. `problem` is its problem details (RFC 9457), or {} if it sent none."""

    def __init__(self, api: str, response: httpx.Response) -> None:
        is_json = "json" in response.headers.get("content-type", "")
        self.status, self.problem = response.status_code, response.json() if is_json else {}
        request = f"{response.request.method} {response.request.url.path}"
        what = self.problem.get("detail") or f"{api} answered {request} with {self.status}."
        super().__init__(what, command="fern status" if response.is_server_error else None)


class _Call:
    """One request, and the decision after each attempt: return the response, repeat the request, or raise.

    api       a name in `APIS`, or a base URL
    user      sends the request as this user of the Labour API. Without a user, a request to a service goes to its operators'
              listener, with the read token for a GET and with the write token for any other method. In a context other than
              `local`, only the operators' listeners can be reached
    key       the idempotency key
    """

    def __init__(
        self,
        settings: Settings,
        api: str,
        method: str,
        path: str,
        *,
        user: str | None = None,
        key: str | None = None,
        patience: float = 0.0,
        **arguments: Any,
    ) -> None:
        self._settings, self._api, self._patience = settings, APIS.get(api, api), patience
        self._began, self._is_operator = time.monotonic(), user is None
        self._is_safe = method == "GET" or key is not None
        headers = {"Idempotency-Key": key} if key else {}
        url, writes = settings.url(self._api) if api in APIS else api, method != "GET"
        if context := settings.context:
            if user or api not in SERVICES:
                raise OnlyLocal(
                    f"the context {context.name} has operators' listeners only: {self._api} is not among them."
                )
            url, token = context.url(api), ""
            headers |= context.headers(writing=writes)
        elif user:
            token = make_token(user)
        elif api in SERVICES:
            url, token = settings.url(f"{api}-operators"), OPERATOR_WRITE_TOKEN if writes else OPERATOR_READ_TOKEN
        else:
            token = ""
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self.request = {"method": method, "url": url + path, "headers": headers, **arguments}

    def response(self, outcome: httpx.Response | httpx.TransportError) -> httpx.Response | None:
        """The response to hand out; None if the request should be sent again."""
        in_time = time.monotonic() < self._began + self._patience
        if isinstance(outcome, httpx.TransportError):
            context, is_local_up = self._settings.context, bool(self._settings.mode)
            if in_time and self._is_safe and (context or is_local_up):
                return None
            raise NotRunning(
                f"{self._api} does not answer.",
                details=f"{self.request['method']} {self.request['url']}: {str(outcome) or type(outcome).__name__}",
                command=f"fern context show {context.name}" if context else "fern status" if is_local_up else "fern up",
            ) from None
        if not outcome.is_error:
            return outcome
        may_pass = outcome.is_server_error or (outcome.status_code == 409 and "retry-after" in outcome.headers)
        is_busy = outcome.status_code == 503 and self._is_operator
        if in_time and (is_busy or (self._is_safe and may_pass)):
            return None
        raise RequestRefused(self._api, outcome)


def call(api: str, method: str, path: str, *, settings: Settings | None = None, **options: Any) -> Any:
    """Send a request and return the JSON of its answer. `options` are those of `_Call`, and httpx's `json` and `params`."""
    one = _Call(settings or Settings.load(), api, method, path, **{"patience": PATIENCE_SECONDS, **options})
    while True:
        try:
            response = one.response(_client().request(**one.request))
        except httpx.TransportError as error:
            response = one.response(error)
        if response is not None:
            return response.json() if response.content else {}
        time.sleep(PAUSE_SECONDS)


def items(
    api: str, path: str, *, settings: Settings | None = None, patience: float = PATIENCE_SECONDS, **query: Any
) -> list[dict[str, Any]]:
    """The items of a listing."""
    found: list[dict[str, Any]] = call(api, "GET", path, params=query, settings=settings, patience=patience)["items"]
    return found


def claims(service: str, event_ids: Sequence[str], settings: Settings | None = None) -> list[dict[str, Any]]:
    """The claims that the service has on these events."""
    parts = [event_ids[start : start + CLAIMS_AT_ONCE] for start in range(0, len(event_ids), CLAIMS_AT_ONCE)]
    path = "/operations/claims"
    return [claim for part in parts for claim in items(service, path, event_id=part, settings=settings)]


def in_batches(api: str, path: str, selection: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Call a route that handles one batch per call until none is left. Yields the items of each batch."""
    after: int | None = 0
    while after is not None:
        batch = call(api, "POST", path, json={**selection, "after": after})
        yield batch["items"]
        after = batch["next"]


def probe(url: str) -> str | None:
    """What is wrong with the answer to a GET of this URL, in a few words; None if nothing is. Takes 2 s at most."""
    try:
        response = _client().get(url, timeout=PROBE_SECONDS)
    except httpx.HTTPError as error:
        return f"no answer ({type(error).__name__})"
    return None if response.is_success else f"answers {response.status_code}"


@cache
def _client() -> httpx.Client:
    """One HTTP client for all calls: creating a client takes longer than many requests."""
    return httpx.Client(timeout=20, trust_env=False)


class AsyncClient:
    """Sends requests from asynchronous code. `timeout` is in seconds, for one attempt. Only `patience` repeats requests."""

    def __init__(self, settings: Settings, timeout: float) -> None:
        self._settings, self._timeout = settings, timeout
        self._http = httpx.AsyncClient(timeout=timeout, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(self, api: str, method: str, path: str, **options: Any) -> httpx.Response:
        """Return a successful response; an error is raised as `RequestRefused`. `options` are those of `call`."""
        one = _Call(self._settings, api, method, path, **options)
        while True:
            try:
                response = one.response(await self._http.request(**one.request))
            except httpx.TransportError as error:
                response = one.response(error)
            if response is not None:
                return response
            await asyncio.sleep(PAUSE_SECONDS)

    async def get(self, api: str, path: str, user: str | None = None, **query: Any) -> Any:
        return (await self.send(api, "GET", path, user=user, params=query)).json()

    async def lines(self, api: str, path: str) -> AsyncIterator[str]:
        """The lines of a stream as they arrive. Ends with the connection, or at once if there is none."""
        timeout = httpx.Timeout(self._timeout, read=None)
        with suppress(httpx.TransportError):
            async with self._http.stream("GET", self._settings.url(APIS[api]) + path, timeout=timeout) as stream:
                async for line in stream.aiter_lines():
                    yield line

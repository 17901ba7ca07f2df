"""How tests and experiments call an HTTP API: one client for synchronous code, one for asynchronous code."""

from collections.abc import Mapping

import httpx

from fern.settings import OPERATOR_READ_TOKEN, OPERATOR_WRITE_TOKEN
from fern.tokens import make_token

# For an API process under test: on a busy machine a request may wait long for its turn, and no test depends on that.
PATIENT = {"HTTP_QUEUE_SECONDS": "60"}

READER = {"Authorization": f"Bearer {OPERATOR_READ_TOKEN}"}
OPERATOR = {"Authorization": f"Bearer {OPERATOR_WRITE_TOKEN}"}


def speaking_as(user: str) -> dict[str, str]:
    """The headers of a request by this user of the Labour API."""
    return {"Authorization": f"Bearer {make_token(user)}"}


def client(url: str, headers: Mapping[str, str] | None = None) -> httpx.Client:
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)


def async_client(url: str, headers: Mapping[str, str] | None = None, *, timeout: float = 60) -> httpx.AsyncClient:
    unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, limits=unlimited, trust_env=False)

"""Operators have a listener of their own, and named tokens of two scopes that are checked before anything else."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
from httpx import AsyncClient
from litestar import Litestar, get, post
from litestar.params import JSONBody

from e2e.support.api import async_client
from e2e.support.http_server import served
from e2e.support.ports import free_port_base
from e2e.support.waiting import eventually
from messaging.errors import SettingsError
from servicekit.http.api_document import Document
from servicekit.http.http_limits import OPERATOR_SLOTS, HttpLimits
from servicekit.http.operator_access import OperatorSettings
from servicekit.http.web import Apis, create_app, create_operator_app, serve_apis
from servicekit.settings import Environment

READ, WRITE = "r" * 32, "w" * 32
LIVE = {"OPERATOR_READ_TOKENS": f"monitor:{READ}", "OPERATOR_WRITE_TOKENS": f"grace:{WRITE}"}


def load(**variables: str) -> OperatorSettings:
    environment = Environment(variables)
    settings = OperatorSettings.load(environment, "LABOUR", port=8407)
    environment.check()
    return settings


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


# Settings


def test_local_mode_has_tokens_and_a_loopback_address_and_live_needs_its_own_tokens() -> None:
    local = load(FERN_MODE="local")

    assert [(token.operator, token.may_write) for token in local.tokens] == [("local", False), ("local", True)]
    assert (local.host, local.port) == ("127.0.0.1", 8407)
    with pytest.raises(SettingsError, match=r"OPERATOR_READ_TOKENS is not set(.|\n)*OPERATOR_WRITE_TOKENS is not set"):
        load()
    assert READ not in repr(load(**LIVE))


def test_a_process_without_the_listener_needs_no_tokens() -> None:
    assert load(LABOUR_OPERATORS_PORT="0").tokens == ()


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (WRITE, "takes name:secret pairs"),
        ("Grace Hopper:" + WRITE, "takes name:secret pairs"),
        (f"grace:{WRITE}é", "takes name:secret pairs"),
        ("grace:short-secret", "the secret of grace has fewer than 32 characters"),
        ("grace:local-operator-write", "has its development value"),
        ("grace:local-operator-read", "has its development value"),
        (f"grace:{READ}", "the same secret twice"),
        (f"grace:{WRITE},alan:{WRITE}", "the same secret twice"),
    ],
)
def test_a_token_that_is_weak_or_ambiguous_is_refused_without_repeating_it(tokens: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as refusal:
        load(**{**LIVE, "OPERATOR_WRITE_TOKENS": tokens})

    assert WRITE not in str(refusal.value)


@pytest.mark.parametrize("mode", ["local", ""])
def test_the_old_setting_is_refused_by_the_names_of_the_new_ones(mode: str) -> None:
    with pytest.raises(SettingsError, match="set OPERATOR_READ_TOKENS and OPERATOR_WRITE_TOKENS"):
        load(**LIVE, FERN_MODE=mode, OPERATIONS_TOKEN="a-real-one")


# Requests


class Desk:
    """An application for operators whose one change waits until it is let go, and counts."""

    def __init__(self) -> None:
        self.changes, self.go_on = 0, asyncio.Event()
        self.go_on.set()

    def app(self, operators: OperatorSettings, limits: HttpLimits) -> Litestar:
        @get("/operations/things")
        async def show() -> int:
            return self.changes

        @post("/operations/things")
        async def change(data: JSONBody[dict[str, int]]) -> int:
            self.changes += 1
            await self.go_on.wait()
            return self.changes

        return create_operator_app(
            document("Desk"), routes=[show, change], problems={}, dependencies={}, limits=limits, operators=operators
        )


def document(title: str) -> Document:
    return Document(title, description="", tags={}, schemes={}, examples=[0, ""])


@asynccontextmanager
async def serving(desk: Desk, **variables: str) -> AsyncIterator[AsyncClient]:
    app = desk.app(load(**{**LIVE, **variables}), HttpLimits(queue=0))
    async with served(app) as url, async_client(url) as client:
        yield client


@pytest.mark.system
@pytest.mark.parametrize(
    ("headers", "reading", "writing"),
    [
        ({}, 401, 401),
        (bearer("x" * 32), 401, 401),
        ({"Authorization": WRITE}, 401, 401),
        ({"Authorization": f"Basic {WRITE}"}, 401, 401),
        (bearer(f"grace:{WRITE}"), 401, 401),
        (bearer(READ), 200, 403),
        (bearer(WRITE), 200, 201),
    ],
)
async def test_a_token_of_one_scope_reads_and_one_of_the_other_changes_as_well(
    headers: dict[str, str], reading: int, writing: int
) -> None:
    desk = Desk()
    async with serving(desk) as client:
        answers = [
            await client.get("/operations/things", headers=headers),
            await client.post("/operations/things", json={}, headers=headers),
        ]
        document = await client.get("/schema/openapi.json", headers=headers)

    assert [answer.status_code for answer in answers] == [reading, writing]
    assert document.status_code == reading
    assert desk.changes == (writing == 201)
    for answer in answers:
        if answer.is_error:
            problem = answer.json()
            assert answer.headers["content-type"] == "application/problem+json"
            assert (
                problem["type"].rpartition(":")[2]
                == {401: "not-authorized", 403: "insufficient-scope"}[problem["status"]]
            )
            assert "OPERATOR_WRITE_TOKENS" in problem["detail"]
            assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.system
async def test_while_a_secret_is_rotated_the_old_and_the_new_one_are_valid() -> None:
    new = "n" * 32
    async with serving(Desk(), OPERATOR_WRITE_TOKENS=f"grace:{WRITE}, grace-2:{new}") as client:
        for secret in (WRITE, new):
            assert (await client.post("/operations/things", json={}, headers=bearer(secret))).status_code == 201


@pytest.mark.system
async def test_a_request_without_a_token_takes_no_slot_and_is_not_parsed() -> None:
    desk = Desk()
    desk.go_on.clear()

    async def changes() -> int:
        return desk.changes

    async with serving(desk) as client:
        change = partial(client.post, "/operations/things", json={}, headers=bearer(WRITE))
        held = [asyncio.create_task(change()) for _ in range(OPERATOR_SLOTS)]
        await eventually(changes, lambda count: count == OPERATOR_SLOTS, what="every slot is taken")

        refused = await client.post("/operations/things", content=b"{")
        nowhere = await client.get("/nowhere%00")
        crowded = await change()
        desk.go_on.set()

        assert (refused.status_code, nowhere.status_code, crowded.status_code) == (401, 401, 503)
        assert [answer.status_code for answer in await asyncio.gather(*held)] == [201] * OPERATOR_SLOTS
        assert (await client.post("/operations/things", content=b"{", headers=bearer(WRITE))).status_code == 400


# The listener


def apis(operators: OperatorSettings) -> Apis:
    async def ready() -> None: ...

    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        yield

    public: Callable[..., Litestar] = partial(create_app, document("Public"), routes=[], problems={})
    limits = HttpLimits()
    return Apis(public(dependencies={}, ready=ready, lifespan=lifespan, limits=limits), Desk().app(operators, limits))


@pytest.mark.system
@pytest.mark.parametrize("has_operators", [True, False])
async def test_each_listener_has_its_own_routes_and_port_0_means_none_for_operators(has_operators: bool) -> None:
    port, stop = free_port_base(), asyncio.Event()
    operators = load(**LIVE, LABOUR_OPERATORS_PORT=str(port + 1 if has_operators else 0))
    serving = asyncio.create_task(
        serve_apis(apis(operators), host="127.0.0.1", port=port, operators=operators, stop=stop)
    )

    async def listening() -> list[bool]:
        assert not serving.done()
        return [is_open(one) for one in (port, port + 1)]

    await eventually(listening, lambda open_ones: open_ones == [True, has_operators], what="the listeners are open")
    async with AsyncExitStack() as clients:
        public = await clients.enter_async_context(async_client(f"http://127.0.0.1:{port}", bearer(WRITE)))
        private = await clients.enter_async_context(async_client(f"http://127.0.0.1:{port + 1}", bearer(WRITE)))
        assert (await public.get("/operations/things")).status_code == 404
        assert (await public.get("/health/live")).status_code == 200
        if has_operators:
            assert (await private.get("/operations/things")).status_code == 200
            assert (await private.get("/health/live")).status_code == 404
    stop.set()
    await serving


@pytest.mark.system
async def test_a_process_whose_port_for_operators_is_taken_does_not_serve_the_public_either() -> None:
    port = free_port_base()
    operators = load(**LIVE, LABOUR_OPERATORS_PORT=str(port + 1))

    with socket.create_server(("127.0.0.1", port + 1)), pytest.raises(OSError, match="in use"):
        await serve_apis(apis(operators), host="127.0.0.1", port=port, operators=operators, stop=asyncio.Event())

    assert not is_open(port)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

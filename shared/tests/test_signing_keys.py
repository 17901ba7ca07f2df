"""Keys of tokens expire, and neither a stranger's tokens nor an outage of the provider can misuse that."""

import asyncio
import time
from collections.abc import Iterator

import jwt
import pytest

from e2e.support.key_server import KeyServer, key_server
from e2e.support.waiting import eventually
from servicekit.http import signing_keys
from servicekit.http.signing_keys import FRESH_SECONDS, PAUSE_SECONDS, TRUSTED_SECONDS, KeysUnavailable, SigningKeys

pytestmark = pytest.mark.system


class Clock:
    """A clock that only the test moves, so that the result does not depend on the speed of the machine."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def moves(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def provider() -> Iterator[KeyServer]:
    with key_server() as provider:
        yield provider


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(signing_keys, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
async def keys(provider: KeyServer, clock: Clock) -> SigningKeys:
    """The keys of a process that has verified a token before."""
    keys = SigningKeys(provider.url)
    assert await trusts(keys, provider.token("one"))
    return keys


async def trusts(keys: SigningKeys, token: str) -> bool:
    try:
        await keys.key(token)
    except jwt.InvalidTokenError:
        return False
    return True


async def test_a_withdrawn_key_is_trusted_while_the_keys_are_fresh_and_refused_soon_after(
    provider: KeyServer, keys: SigningKeys, clock: Clock
) -> None:
    provider.add("two")
    provider.withdraw("one")
    clock.moves(FRESH_SECONDS)
    assert await trusts(keys, provider.token("one"))
    assert provider.fetches == 1

    clock.moves(1)

    await eventually(lambda: trusts(keys, provider.token("one")), lambda trusted: not trusted)
    assert await trusts(keys, provider.token("two"))


async def test_after_a_long_pause_the_keys_are_fetched_before_a_token_is_trusted(
    provider: KeyServer, keys: SigningKeys, clock: Clock
) -> None:
    provider.add("two")
    provider.withdraw("one")

    clock.moves(TRUSTED_SECONDS + 1)

    assert not await trusts(keys, provider.token("one"))


async def test_a_new_key_is_known_at_its_first_use(provider: KeyServer, keys: SigningKeys, clock: Clock) -> None:
    provider.add("two")
    clock.moves(PAUSE_SECONDS)

    assert await trusts(keys, provider.token("two"))


async def test_tokens_with_made_up_key_ids_cause_one_fetch_in_each_pause(
    provider: KeyServer, keys: SigningKeys, clock: Clock
) -> None:
    async def forge() -> None:
        made_up = (provider.token(f"made-up-{number}") for number in range(20))
        assert not any(await asyncio.gather(*(trusts(keys, token) for token in made_up)))

    await forge()
    assert provider.fetches == 1
    clock.moves(PAUSE_SECONDS)
    await forge()
    await forge()

    assert provider.fetches == 2
    assert await trusts(keys, provider.token("one"))


async def test_an_outage_of_the_provider_is_bridged_for_as_long_as_its_keys_are_trusted(
    provider: KeyServer, keys: SigningKeys, clock: Clock
) -> None:
    provider.answers = False
    clock.moves(TRUSTED_SECONDS)
    assert await trusts(keys, provider.token("one"))

    clock.moves(PAUSE_SECONDS)
    with pytest.raises(KeysUnavailable):
        await keys.key(provider.token("one"))

    provider.answers = True
    clock.moves(PAUSE_SECONDS)
    assert await trusts(keys, provider.token("one"))


async def test_a_key_for_another_algorithm_is_no_key(provider: KeyServer, clock: Clock) -> None:
    provider.add("other", alg="RS512")

    assert not await trusts(SigningKeys(provider.url), provider.token("other"))

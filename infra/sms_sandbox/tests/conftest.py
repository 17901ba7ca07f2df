from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from sms_sandbox import Address, running

from .parts import Client, WebhookReceiver, receiving, twilio_client


@pytest.fixture
async def sms(tmp_path: Path) -> AsyncIterator[Address]:
    async with running(tmp_path / "sms") as address:
        yield address


@pytest.fixture
async def api(sms: Address) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=sms.url, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
async def twilio(sms: Address) -> AsyncIterator[Client]:
    async with twilio_client(sms.url) as client:
        yield client


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with receiving() as receiver:
        yield receiver

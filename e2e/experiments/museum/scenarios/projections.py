"""Scenarios of a projection."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text
from uuid_utils.compat import uuid7

from contracts.events import Event, LabourCompleted, NotificationDelivered, NotificationSent
from contracts.registry import decode
from e2e.experiments.museum.testbed import Testbed
from labour.application.told import TOPICS
from labour.consumer import NAME
from messaging.consumer import Consumer, React, decoder
from messaging.relay import Relay


async def a_delivery_overtakes_its_sending(bed: Testbed, part: React[Event]) -> list[str]:
    """A text is sent and then delivered. The Labour service gets the event of the delivery first."""
    now, ids = datetime.now(UTC), ("notification_id", "labour_id", "person_id", "cause_id")
    about: dict[str, Any] = {name: uuid7() for name in ids} | {"cause_type": LabourCompleted.type, "channel": "sms"}
    async with bed.in_notification() as uow:
        uow.emit(NotificationSent(**about, sent_at=now), key="ada", at=now)
        uow.emit(NotificationDelivered(**about, delivered_at=now), key="ada", at=now)
    await bed.publish_all(by=Relay(bed.notification, bed.bus))

    reacting = Consumer(
        NAME, units_of_work=bed.in_labour, decode=decoder(TOPICS, decode, {}), react=part, publisher=bed.bus
    )
    for event in (NotificationDelivered, NotificationSent):
        await bed.deliver_all(reacting, [f"{NAME}.{event.type}"])

    async with bed.labour.connect() as connection:
        status = (await connection.execute(text("SELECT status FROM told"))).scalar_one()
    return [] if status == "delivered" else [f"went back: the text is delivered, and is shown as {status}"]

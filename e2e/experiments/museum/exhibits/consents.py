"""Mistakes about consent."""

from collections.abc import Collection

import asyncpg

from e2e.experiments.museum.exhibit import exhibit
from e2e.experiments.museum.scenarios import consents as scenarios
from notification.delivery import consents
from notification.domain.consent import Consents, ConsentState

WAITS_FOR_EVER = "lost: labour.completed waits for a consent that was given"


@exhibit("consent without a lock", scenarios.a_yes_arrives_while_a_text_is_written, consents.load, 14, WAITS_FOR_EVER)
async def consent_without_a_lock(connection: asyncpg.Connection, phones: Collection[str]) -> Consents:
    """The consumer read whether the person had agreed, and if not, wrote a text that waits for consent. It looks right
    because the transaction of the answer releases every text that waits. But that transaction did not see the
    consumer's text, which was not committed yet, and no second answer will come. Our consumer locks the consent of a
    number that has not answered, so that the later of the two transactions sees the result of the earlier one.
    """
    insert = (
        "INSERT INTO consent (phone, state) SELECT unnest($1::text[]), 'ASKED' ON CONFLICT DO NOTHING RETURNING phone"
    )
    asked = [row["phone"] for row in await connection.fetch(insert, list(phones))]
    rows = await connection.fetch("SELECT phone, state FROM consent WHERE phone = ANY($1::text[])", list(phones))
    return Consents({row["phone"]: ConsentState(row["state"]) for row in rows}, asked)

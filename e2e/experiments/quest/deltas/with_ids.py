"""Designs that remember each event by its id, or the contraction by its own: in a record beside the effect, or in the effect."""

from typing import ClassVar

from e2e.experiments.quest.deltas.design import ADD, FOR_EVER, RETENTION, TTL, Design, Event, Semantics, Worker
from messaging import claims
from messaging.claims import Claim
from messaging.consumer import Verdict


class SelectThenWrite(Design):
    """Looks for the id of the event, and if it is absent, writes the id and adds the delta, all in one transaction.

    Two workers that look at the same time both find nothing. With a unique key on the id, the second insert would fail: then
    the key decides and the SELECT is only a query more.
    """

    name = "SELECT, then write"
    semantics = Semantics.AT_LEAST_ONCE
    remembers = RETENTION
    breaks = "Two workers that look before either has committed both find nothing, and both add."
    tables = "CREATE TABLE handled (event_id uuid)"
    forget = "TRUNCATE handled"

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        connection = worker.connection
        async with connection.transaction():
            handled = await connection.fetchval("SELECT true FROM handled WHERE event_id = $1", event.id)
            await worker.checked()
            if not handled:
                await connection.execute("INSERT INTO handled (event_id) VALUES ($1)", event.id)
                await worker.between()
                await connection.execute(ADD, *event.delta)
        return Verdict.ACK


class Gate(Design):
    """One statement inserts the id under a unique key and updates the total only if the id was new. A second worker waits at
    the key for the first one's commit.

    If the labour has no row yet, the UPDATE matches nothing, and the id is recorded all the same: the effect is lost for good.
    """

    name = "gate by CTE"
    semantics = Semantics.AT_MOST_ONCE
    remembers = RETENTION
    breaks = "The UPDATE of a row that does not exist changes nothing, and the event counts as handled."
    tables = "CREATE TABLE handled (event_id uuid PRIMARY KEY)"
    forget = "TRUNCATE handled"
    statement = """
        WITH new AS (INSERT INTO handled (event_id) VALUES ($4) ON CONFLICT DO NOTHING RETURNING event_id)
        UPDATE total SET count = count + $2, seconds = seconds + $3 FROM new WHERE labour_id = $1
    """

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        async with worker.connection.transaction():
            await worker.checked()
            await worker.connection.execute(self.statement, *event.delta, event.id)
            await worker.between()
        return Verdict.ACK


class GateWithRow(Gate):
    """The same gate before an INSERT … ON CONFLICT DO UPDATE, which creates the row if there is none.

    It forgets with its retention: an older event that is replayed is added again.
    """

    name = "gate, row ensured"
    semantics = Semantics.EFFECTIVELY_ONCE
    breaks = "A replay of events that are older than the retention adds them again."
    statement = """
        WITH new AS (INSERT INTO handled (event_id) VALUES ($4) ON CONFLICT DO NOTHING RETURNING event_id)
        INSERT INTO total (labour_id, count, seconds) SELECT $1, $2, $3 FROM new ON CONFLICT (labour_id)
        DO UPDATE SET count = total.count + excluded.count, seconds = total.seconds + excluded.seconds
    """


class NaturalKey(Design):
    """The effect is a row: one for each contraction, under the contraction's own id. The totals are a query.

    The second event about a contraction, a correction, has the same key and is taken for a duplicate.
    """

    name = "natural key"
    semantics = Semantics.AT_MOST_ONCE
    remembers = FOR_EVER
    breaks = "A correction has the key of the contraction that it corrects, and is taken for a duplicate."
    tables = "CREATE TABLE contraction (id uuid PRIMARY KEY, labour_id uuid NOT NULL, seconds integer NOT NULL)"
    totals = "SELECT labour_id, count(*), sum(seconds) FROM contraction GROUP BY labour_id"

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        row = "INSERT INTO contraction (id, labour_id, seconds) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
        async with worker.connection.transaction():
            await worker.checked()
            await worker.connection.execute(row, event.contraction_id, event.labour_id, event.seconds)
            await worker.between()
        return Verdict.ACK


POST = """
    WITH new AS (
        INSERT INTO posting (labour_id, event_id, count, seconds) VALUES ($1, $4, $2, $3)
        ON CONFLICT DO NOTHING RETURNING labour_id, count, seconds)
    INSERT INTO total (labour_id, count, seconds) SELECT labour_id, count, seconds FROM new ON CONFLICT (labour_id)
    DO UPDATE SET count = total.count + excluded.count, seconds = total.seconds + excluded.seconds
"""


class PostingLedger(Design):
    """Each event is a posting of the labour, under (labour, event id). The statement that inserts it adds it to the balance, and
    only if it is new.

    The postings are data of the labour and not a memory beside it, so no retention deletes them.
    """

    name = "posting ledger"
    semantics = Semantics.EFFECTIVELY_ONCE
    remembers = FOR_EVER
    breaks = "Right under every misfortune; a second worker waits for the first, with its whole batch."
    tables = """
        CREATE TABLE posting (
            labour_id uuid, event_id uuid, count integer NOT NULL, seconds integer NOT NULL,
            PRIMARY KEY (labour_id, event_id))
    """

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        async with worker.connection.transaction():
            await worker.checked()
            await worker.connection.execute(POST, *event.delta, event.id)
            await worker.between()
        return Verdict.ACK


class Recomputation(PostingLedger):
    """Each event is a fact with a unique id, and the totals are computed from all facts of the labour, never added to. The row
    of the labour is locked first: otherwise two workers with two events would each compute without the other's fact.

    A wrong total repairs itself with the next event. The price grows with the number of facts.
    """

    name = "recomputation"
    breaks = "Right under every misfortune; every event reads all facts of its labour."
    lock: ClassVar[str] = (
        "INSERT INTO total VALUES ($1, 0, 0) ON CONFLICT (labour_id) DO UPDATE SET count = total.count"
    )

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        connection = worker.connection
        async with connection.transaction():
            await worker.checked()
            await connection.execute(self.lock, event.labour_id)
            fact = "INSERT INTO posting (labour_id, count, seconds, event_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
            await connection.execute(fact, *event.delta, event.id)
            await worker.between()
            await connection.execute(
                """
                UPDATE total SET (count, seconds) =
                    (SELECT sum(count), sum(seconds) FROM posting WHERE posting.labour_id = total.labour_id)
                WHERE labour_id = $1
                """,
                event.labour_id,
            )
        return Verdict.ACK


MARK = "INSERT INTO mark (event_id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING true"


class MarkBefore(Design):
    """Marks the event in a store beside the database (as SET NX with a TTL does in Redis), and adds the delta if the mark is new.

    A crash after the mark loses the effect: the next delivery finds the mark. And the mark expires.
    """

    name = "store beside, mark first"
    semantics = Semantics.AT_MOST_ONCE
    remembers = TTL
    breaks = "A crash between the mark and the commit leaves a mark without its effect."
    tables = "CREATE TABLE mark (event_id uuid PRIMARY KEY)"
    forget = "TRUNCATE mark"

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        await worker.checked()
        if await worker.aside.fetchval(MARK, event.id):
            await worker.between()
            await worker.connection.execute(ADD, *event.delta)
        return Verdict.ACK


class MarkAfter(MarkBefore):
    """Looks for the mark, adds the delta, and marks the event afterwards.

    A crash before the mark duplicates the effect, and so do two workers that look at the same time. And the mark expires.
    """

    name = "store beside, mark last"
    semantics = Semantics.AT_LEAST_ONCE
    breaks = "A crash between the commit and the mark leaves an effect without its mark; two workers both find none."

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        marked = await worker.aside.fetchval("SELECT true FROM mark WHERE event_id = $1", event.id)
        await worker.checked()
        if not marked:
            await worker.connection.execute(ADD, *event.delta)
            await worker.between()
            await worker.aside.fetchval(MARK, event.id)
        return Verdict.ACK


class Ours(PostingLedger):
    """Claim, posting and balance in one transaction, with the claims of our consumers. A second worker gets no claim and puts the
    event back, instead of waiting.

    The claims may be forgotten after the replay horizon: what is replayed later meets the ledger's key, as a text does.
    """

    name = "ours: claim and ledger"
    breaks = "Right under every misfortune; two rows for each event, one of them for the retention only."
    forget = "DELETE FROM processed_event"

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        async with worker.connection.transaction():
            claim = (await claims.claim(worker.connection, "deltas", [event.id]))[event.id]
            await worker.checked()
            if claim is Claim.GRANTED:
                await worker.between()
                await worker.connection.execute(POST, *event.delta, event.id)
                await claims.complete(worker.connection, "deltas", [event.id])
        return Verdict.NACK if claim is Claim.HELD_ELSEWHERE else Verdict.ACK

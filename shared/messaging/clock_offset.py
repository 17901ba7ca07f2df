"""How far the clock of this process is from the database's. Beyond `TOLERANCE` the process must not delete anything.

Every process compares the two on each new connection to its database, and logs an error once if its clock is wrong.
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from structlog import get_logger

from messaging import clock

log = get_logger()

TOLERANCE = timedelta(minutes=1)


async def database_time(connection: AsyncConnection) -> datetime:
    at: datetime = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
    return at


async def offset(engine: AsyncEngine) -> timedelta:
    """How far this process's clock is ahead of the database's; negative if it is behind."""
    async with engine.connect() as connection:
        asked = clock.now()
        return _ahead(asked, await database_time(connection), clock.now())


async def problem(engine: AsyncEngine) -> str | None:
    """What is wrong with the clock of this process, or None if it is within `TOLERANCE` of the database's."""
    return _describe(await offset(engine))


def compare_on_connect(engine: AsyncEngine) -> None:
    reported = False

    def compare(connection: Any, _: object) -> None:
        nonlocal reported
        asked = clock.now()
        theirs = connection.run_async(lambda driver: driver.fetchval("SELECT clock_timestamp()"))
        wrong = _describe(_ahead(asked, theirs, clock.now()))
        if wrong and not reported:
            log.error("the clock is wrong", error=wrong)
        reported = wrong is not None

    event.listen(engine.sync_engine, "connect", compare)


def _ahead(asked: datetime, theirs: datetime, answered: datetime) -> timedelta:
    """Zero if the database's time lies between the question and the answer, so that a slow answer never looks like an offset."""
    return max(asked - theirs, timedelta()) or min(answered - theirs, timedelta())


def _describe(ahead: timedelta) -> str | None:
    if abs(ahead) <= TOLERANCE:
        return None
    direction = "ahead of" if ahead > timedelta() else "behind"
    seconds = abs(ahead).total_seconds()
    return f"the clock of this process is {seconds:.0f} s {direction} the database's: set the clock of its machine"

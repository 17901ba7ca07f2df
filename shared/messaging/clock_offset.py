"""How far the clock of this process is from the database's. Beyond `TOLERANCE` the process must not delete anything."""

from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from messaging import clock

TOLERANCE = timedelta(minutes=1)


async def database_time(connection: AsyncConnection) -> datetime:
    at: datetime = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
    return at


async def offset(engine: AsyncEngine) -> timedelta:
    """How far this process's clock is ahead of the database's; negative if it is behind.

    Zero if the database's time lies between the question and the answer, so that a slow answer never looks like an offset.
    """
    async with engine.connect() as connection:
        asked = clock.now()
        theirs = await database_time(connection)
        answered = clock.now()
    return max(asked - theirs, timedelta()) or min(answered - theirs, timedelta())


async def problem(engine: AsyncEngine) -> str | None:
    """What is wrong with the clock of this process, or None if it is within `TOLERANCE` of the database's."""
    ahead = await offset(engine)
    if abs(ahead) <= TOLERANCE:
        return None
    direction = "ahead of" if ahead > timedelta() else "behind"
    seconds = abs(ahead).total_seconds()
    return f"the clock of this process is {seconds:.0f} s {direction} the database's: set the clock of its machine"

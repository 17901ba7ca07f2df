"""Creates the tables of the articles' designs and of the limits."""

import asyncio
from pathlib import Path

from sqlalchemy.ext.asyncio import create_async_engine

from e2e.experiments.bench.articles.tables import Base
from e2e.experiments.bench.environment import Environment


def create_articles_tables(url: str) -> None:
    async def create() -> None:
        engine = create_async_engine(url)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        await engine.dispose()

    asyncio.run(create())


def create_limits_tables(environment: Environment, url: str) -> None:
    environment.sql(url, (Path(__file__).parent / "limits" / "tables.sql").read_text())

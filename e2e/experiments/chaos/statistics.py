"""The statistics after a chaos run, compared with the contractions of the labours themselves."""

from collections.abc import Iterator

from e2e.support.world import World
from fern.audit.auditor import Finding

_DIFFERENCES = """
    WITH own AS (
        SELECT labour_id, 'contractions' AS what, count(*) AS amount FROM contraction GROUP BY labour_id
        UNION ALL SELECT labour_id, 'length', extract(epoch FROM sum(ended_at - started_at)) * 1000000
        FROM contraction WHERE ended_at IS NOT NULL GROUP BY labour_id),
    counted AS (SELECT labour_id, what, amount FROM statistics_balance WHERE what IN ('contractions', 'length'))
    SELECT DISTINCT labour_id FROM own FULL JOIN counted USING (labour_id, what)
    WHERE coalesce(own.amount, 0) <> coalesce(counted.amount, 0)
"""


def check_statistics(world: World) -> Iterator[Finding]:
    for row in world.sql("labour", _DIFFERENCES):
        what = "The statistics of this labour are not those of its contractions."
        yield Finding("unexplained", str(row["labour_id"]), "effects", what, "")

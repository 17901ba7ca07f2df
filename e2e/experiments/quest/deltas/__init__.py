"""The same counter in fifteen designs, from naive to ours, under the same misfortunes."""

from e2e.experiments.quest.deltas.design import Design
from e2e.experiments.quest.deltas.with_ids import (
    Gate,
    GateWithRow,
    MarkAfter,
    MarkBefore,
    NaturalKey,
    Ours,
    PostingLedger,
    Recomputation,
    SelectThenWrite,
)
from e2e.experiments.quest.deltas.without_ids import (
    AddAlways,
    ContiguousWatermark,
    CountOnConflict,
    LastVersion,
    TimeAsKey,
    WatermarkOfTheSource,
)

DESIGNS: tuple[type[Design], ...] = (
    AddAlways,
    CountOnConflict,
    SelectThenWrite,
    Gate,
    GateWithRow,
    NaturalKey,
    LastVersion,
    WatermarkOfTheSource,
    ContiguousWatermark,
    TimeAsKey,
    MarkBefore,
    MarkAfter,
    Recomputation,
    PostingLedger,
    Ours,
)

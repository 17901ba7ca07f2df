"""`fern audit`: accounts for every event, from the committed row to the phone, while everything runs."""

from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

# lost          it should be further along, and nothing shows that it ever will be
# duplicated    it had its effect, or reached a phone, more than once
# out-of-order  it overtook an earlier event of its labour
# unexplained   an effect, a claim or a text that no event accounts for
# stuck         safe where it is, but it waits for a person: overdue, parked, dead-lettered
Kind = Literal["lost", "duplicated", "out-of-order", "unexplained", "stuck"]

SHOWN = 100  # findings kept of each kind; the totals count all of them


@dataclass(frozen=True, slots=True)
class Finding:
    """`event_id` is what `fern trace` takes: the event, or the labour where there is no event."""

    kind: Kind
    event_id: str
    stage: str  # committed, published, claimed, effects, texts
    what: str  # a sentence
    command: str  # what to do about it


class DeadLetter(NamedTuple):
    """A message that waits in a dead-letter subscription, as the auditor needs to know it."""

    event_id: str
    consumer: str
    reason: str


@dataclass(slots=True)
class Account:
    """How many events, effects and texts are at each stage, and every one that is not where it should be."""

    committed: int = 0
    published: int = 0
    claimed: int = 0
    effects: int = 0
    texts: int = 0
    repeats: int = 0  # deliveries that found their event done
    waiting: int = 0  # on the way, and not overdue
    dead: int = 0
    parked: int = 0
    discarded: int = 0
    totals: dict[Kind, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not any(self.totals.values())

    def name(self, finding: Finding) -> None:
        self.totals[finding.kind] = self.totals.get(finding.kind, 0) + 1
        if self.totals[finding.kind] <= SHOWN:
            self.findings.append(finding)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "clean": self.clean}


Progress = Callable[[str, int, int | None], None]  # what is being read, how many so far, of how many if that is known


async def audit(
    databases: Mapping[str, str],
    *,
    sandbox: str | None,
    dead_letters: AsyncIterable[DeadLetter] | None = None,
    overdue_seconds: float = 60.0,
    progress: Progress = lambda what, done, of: None,
) -> Account:
    """`databases` are the addresses of `labour` and `notification`; `sandbox` that of the SMS sandbox, or None.

    With `overdue_seconds=0` nothing may be on the way any more.
    """
    raise NotImplementedError

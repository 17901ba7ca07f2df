"""The result of an audit: how many events and texts are at each stage, and every one that is not where it should be."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

# late          it should have reached the next stage by now, and something will still bring it there
# lost          it should have reached the next stage, and nothing can bring it there any more
# duplicated    a person got it more than once
# out-of-order  it was recorded or published before an earlier event of its labour, or sent after a newer text to the same person
# unexplained   a claim, an effect or a text without an event that causes it, or different from what its event causes
# stuck         not lost, but no process continues it: parked, dead-lettered, or in doubt for too long
Kind = Literal["late", "lost", "duplicated", "out-of-order", "unexplained", "stuck"]

ShowProgress = Callable[[str, int, int | None], None]  # what is being read, how many so far, of how many if known

KEPT = 100  # findings of each kind; the totals count all of them
PRINTED = 10
STAGES = ("published", "claimed", "effects", "texts")


@dataclass(frozen=True, slots=True)
class Finding:
    """`event_id` is the argument for `fern trace`: an event, or a labour where no event is known."""

    kind: Kind
    event_id: str
    stage: str
    what: str  # a sentence
    command: str  # what to do about it


@dataclass(slots=True)
class Stage:
    """Of the `due` events, `done` have reached the stage, `waiting` are on their way, and `held` need an operator's decision."""

    due: int = 0
    done: int = 0
    waiting: int = 0
    held: int = 0

    @property
    def adds_up(self) -> bool:
        return self.done + self.waiting + self.held == self.due


@dataclass(slots=True)
class AuditReport:
    """Counts are events, except for texts. An event with two consumers counts twice as claimed, and twice as an effect."""

    committed: int = 0
    stages: dict[str, Stage] = field(default_factory=lambda: {name: Stage() for name in STAGES})
    untaken: int = 0  # published, and no service consumes their topic
    repeats: int = 0  # deliveries of events that were completed before
    dead: int = 0
    parked: int = 0
    discarded: int = 0  # outbox rows that an operator discarded
    given_up: int = 0  # dead letters that an operator discarded
    superseded: int = 0  # messages that were not sent, because a newer one to the same person was
    awaiting_consent: int = 0  # messages whose recipients have been asked and have not answered
    texts_compared: bool = False
    totals: dict[Kind, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    published = property(lambda self: self.stages["published"].done)
    claimed = property(lambda self: self.stages["claimed"].done)
    effects = property(lambda self: self.stages["effects"].done)
    texts = property(lambda self: self.stages["texts"].done)

    @property
    def waiting(self) -> int:
        """How many events and texts are on their way, late or not."""
        return sum(stage.waiting for stage in self.stages.values())

    @property
    def clean(self) -> bool:
        return not any(self.totals.values())

    @property
    def only_late(self) -> bool:
        """Whether all findings are late: no promise is broken, and no operator has to decide anything."""
        return not self.clean and not any(count for kind, count in self.totals.items() if kind != "late")

    def add(self, kind: Kind, event_id: object, stage: str, what: str, command: str = "") -> None:
        """Add a finding. Without a `command` that repairs it, its command is the one that shows every hop of the event."""
        self.totals[kind] = self.totals.get(kind, 0) + 1
        if self.totals[kind] <= KEPT:
            self.findings.append(Finding(kind, str(event_id), stage, what, command or f"fern trace {event_id}"))

    def to_json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("published", "claimed", "effects", "texts", "waiting")}
        return {"clean": self.clean, "committed": self.committed, **counts, **asdict(self)}


def show(report: AuditReport, console: Console) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "left", "right", "left"):
        table.add_column(justify=justify)
    table.add_row("committed", "", f"{report.committed:,}", "events of both services")
    for name, stage in report.stages.items():
        sign = "[green]=[/]" if stage.adds_up else "[red]≠[/]"
        table.add_row(name, sign, f"{stage.done:,}", f"[dim]{', '.join(_remarks(report, name, stage))}[/]")
    console.print(table)
    for kind, total in report.totals.items():
        console.print(f"\n[bold {'yellow' if kind == 'late' else 'red'}]{kind}: {total:,}[/]")
        for finding in [finding for finding in report.findings if finding.kind == kind][:PRINTED]:
            console.print(f"  {finding.event_id}  {finding.what}\n    [bold]{finding.command}[/]")
        if total > PRINTED:
            console.print(f"  … and {total - PRINTED:,} more; --json has {min(total, KEPT):,} of them")
    if report.clean:
        console.print("\n[green]clean[/]: every event and every text is accounted for")


def _remarks(report: AuditReport, name: str, stage: Stage) -> list[str]:
    """What explains the difference between a stage and the one before it, as numbers with words."""
    remarks = [f"of {stage.due:,}"] if stage.done != stage.due else []
    if name == "texts" and not report.texts_compared:
        remarks.append("by our own ledger, without a sandbox to compare with")
    counts = {"on their way": stage.waiting}
    if name == "texts":
        counts |= {"superseded by a newer text": report.superseded, "waiting for consent": report.awaiting_consent}
    if name == "published":
        counts |= {"parked": report.parked, "discarded": report.discarded}
    if name == "claimed":
        counts |= {"without a consumer": report.untaken, "dead": report.dead, "given up": report.given_up}
        counts |= {"repeats absorbed": report.repeats}
    return remarks + [f"{count:,} {what}" for what, count in counts.items() if count]

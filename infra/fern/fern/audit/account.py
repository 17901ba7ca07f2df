"""What an audit says: how many events and texts are at each stage, and every one that is not where it should be."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

# lost          it should be further along, and nothing shows that it ever will be
# duplicated    it reached somebody more than once
# out-of-order  it overtook an earlier event of its labour
# unexplained   a claim, an effect or a text that no event accounts for, or that does not fit its event
# stuck         safe where it is, but it will not go on by itself: overdue, parked, dead-lettered
Kind = Literal["lost", "duplicated", "out-of-order", "unexplained", "stuck"]

Progress = Callable[[str, int, int | None], None]  # what is being read, how many so far, of how many if that is known

KEPT = 100  # findings of each kind; the totals count all of them
PRINTED = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """`event_id` is what `fern trace` takes: the event, or the labour where no event is known."""

    kind: Kind
    event_id: str
    stage: str
    what: str  # a sentence
    command: str  # what to do about it


@dataclass(slots=True)
class Stage:
    """`due` should be here; `done` are; `waiting` may still come by themselves, and `held` wait for a person or never come."""

    due: int = 0
    done: int = 0
    waiting: int = 0
    held: int = 0

    @property
    def adds_up(self) -> bool:
        return self.done + self.waiting + self.held == self.due


@dataclass(slots=True)
class Account:
    """Counts are events, except for texts. An event with two consumers is claimed, and has its effect, twice."""

    committed: int = 0
    stages: dict[str, Stage] = field(
        default_factory=lambda: {name: Stage() for name in ("published", "claimed", "effects", "texts")}
    )
    untaken: int = 0  # published for nobody: no service takes such events yet
    repeats: int = 0  # deliveries that found their event done
    dead: int = 0
    parked: int = 0
    discarded: int = 0  # by a person, from an outbox
    given_up: int = 0  # by a person, from the dead letters
    texts_compared: bool = False
    totals: dict[Kind, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def published(self) -> int:
        return self.stages["published"].done

    @property
    def claimed(self) -> int:
        return self.stages["claimed"].done

    @property
    def effects(self) -> int:
        return self.stages["effects"].done

    @property
    def texts(self) -> int:
        return self.stages["texts"].done

    @property
    def waiting(self) -> int:
        """On the way, and not overdue."""
        return sum(stage.waiting for stage in self.stages.values())

    @property
    def clean(self) -> bool:
        return not any(self.totals.values())

    def name(self, kind: Kind, event_id: object, stage: str, what: str, command: str = "") -> None:
        """Where nothing but a person's judgement helps, the command shows all there is to know."""
        self.totals[kind] = self.totals.get(kind, 0) + 1
        if self.totals[kind] <= KEPT:
            self.findings.append(Finding(kind, str(event_id), stage, what, command or f"fern trace {event_id}"))

    def to_json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("published", "claimed", "effects", "texts", "waiting")}
        return {"clean": self.clean, "committed": self.committed, **counts, **asdict(self)}


def show(account: Account, console: Console) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "left", "right", "left"):
        table.add_column(justify=justify)
    table.add_row("committed", "", f"{account.committed:,}", "events of both services")
    for name, stage in account.stages.items():
        sign = "[green]=[/]" if stage.adds_up else "[red]≠[/]"
        table.add_row(name, sign, f"{stage.done:,}", f"[dim]{', '.join(_remarks(account, name, stage))}[/]")
    console.print(table)
    for kind, total in account.totals.items():
        console.print(f"\n[bold red]{kind}: {total:,}[/]")
        for finding in [finding for finding in account.findings if finding.kind == kind][:PRINTED]:
            console.print(f"  {finding.event_id}  {finding.what}\n    [bold]{finding.command}[/]")
        if total > PRINTED:
            console.print(f"  … and {total - PRINTED:,} more; --json has {min(total, KEPT):,} of them")
    if account.clean:
        console.print("\n[green]clean[/]: every event and every text is accounted for")


def _remarks(account: Account, name: str, stage: Stage) -> list[str]:
    """What else belongs to the equation."""
    remarks = [f"of {stage.due:,}"] if stage.done != stage.due else []
    if name == "texts" and not account.texts_compared:
        remarks.append("by our own ledger: there is no sandbox to ask")
    counts = {
        "published": {"parked": account.parked, "discarded": account.discarded},
        "claimed": {
            "taken by nobody": account.untaken,
            "dead": account.dead,
            "given up": account.given_up,
            "repeats absorbed": account.repeats,
        },
    }.get(name, {})
    counts = {"on their way": stage.waiting, **counts}
    return remarks + [f"{count:,} {what}" for what, count in counts.items() if count]

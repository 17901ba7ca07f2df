"""`fern quest sms`: three designs of sending a text, one fault at a time, with about half of the people hit by it.

The designs are those of `fern quest`, and every message is delivered twice. What is counted are the texts on the phones. Exit
code 1 if our design lost a text, or duplicated one under a fault that it claims to survive.
"""

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import click
from rich.table import Table

from e2e.experiments.quest.designs import QUARANTINE, Design, Ours, RecordBeforeSend, SendInTheClaim
from e2e.experiments.quest.environment import FaultNames, LabourOutcome
from e2e.experiments.quest.faults import HIDDEN
from e2e.experiments.quest.runner import compare
from fern.output import json_option, make_console, print_json
from servicekit.logs import configure
from sms_sandbox.faults import KINDS

DESIGNS: dict[str, type[Design]] = {
    "send in the claim": SendInTheClaim,
    "record, then send": RecordBeforeSend,
    "ledger and asking": Ours,
}
MOST_PEOPLE = 40  # for each scenario
RATE = 0.5  # the share of people that a fault hits

PROVIDER_FAULTS = {name: kind for kind in KINDS for name in HIDDEN.get(kind, (kind,))}


@dataclass(frozen=True, slots=True)
class SmsScenario:
    """`remains`: our design does not claim to survive these faults, and docs/guarantees.md says so."""

    title: str
    faults: tuple[str, ...] = ()
    remains: bool = False

    def hits(self, seed: int, person: int) -> FaultNames:
        """The faults that hit this person. A fault of the provider hits the same phones as in a sandbox with this seed."""
        phone, hits = f"+120255501{person:02}", {"duplicate"}
        for fault in self.faults:
            kind = PROVIDER_FAULTS.get(fault)
            key = f"{seed}/{kind}/{phone}/1" if kind else f"{seed}/{self.title}/{phone}"
            if random.Random(key).random() < RATE:
                hits.add(fault)
        return FaultNames(hits)


SCENARIOS = (
    SmsScenario("nothing goes wrong"),
    SmsScenario("crash after the record, before the call", ("crash-before-call",)),
    SmsScenario("request lost", ("request-lost",)),
    SmsScenario("reply lost", ("reply-lost",)),
    SmsScenario("created, but answered 500", ("created-500",)),
    SmsScenario("crash after the reply", ("crash-after-call",)),
    SmsScenario("crash before the last commit", ("crash-before-record",)),
    SmsScenario("created late, within the quarantine", ("created-late",)),
    SmsScenario("reply lost and list late, within the quarantine", ("listed-late", "reply-lost")),
    SmsScenario("sender paused beyond lease and quarantine", ("freeze-before-check",)),
    SmsScenario("created late, after the quarantine", ("created-too-late",), remains=True),
    SmsScenario("reply lost and list late, after the quarantine", ("listed-too-late", "reply-lost"), remains=True),
    SmsScenario("sender paused after its look at the clock", ("freeze-after-check",), remains=True),
)


@dataclass(frozen=True, slots=True)
class Count:
    lost: int
    duplicated: int
    once: int

    @classmethod
    def of(cls, outcomes: Sequence[LabourOutcome]) -> "Count":
        return cls(*map(outcomes.count, (LabourOutcome.LOST, LabourOutcome.DUPLICATED, LabourOutcome.ONCE)))

    def __add__(self, other: "Count") -> "Count":
        return Count(self.lost + other.lost, self.duplicated + other.duplicated, self.once + other.once)


@dataclass(frozen=True, slots=True)
class ScenarioCounts:
    fault: str
    remains: bool
    counts: dict[str, Count]


def all_hits(messages: int, seed: int) -> list[FaultNames]:
    return [scenario.hits(seed, person) for scenario in SCENARIOS for person in range(messages)]


def count(outcomes: Mapping[str, Sequence[LabourOutcome]], messages: int) -> list[ScenarioCounts]:
    """`outcomes` are those of `all_hits`, by the name of the design."""
    results = []
    for number, scenario in enumerate(SCENARIOS):
        people = slice(number * messages, (number + 1) * messages)
        counts = {title: Count.of(outcomes[design.name][people]) for title, design in DESIGNS.items()}
        results.append(ScenarioCounts(scenario.title, scenario.remains, counts))
    return results


def table(results: Sequence[ScenarioCounts]) -> Table:
    shown = Table("lost · twice · once", box=None, pad_edge=False)
    for title in DESIGNS:
        shown.add_column(title, justify="right")
    for result in results:
        shown.add_row(result.fault + (" *" if result.remains else ""), *map(cell, result.counts.values()))
    shown.add_row("all", *map(cell, totals(results).values()))
    claimed = [result for result in results if not result.remains]
    shown.add_row("all without *", *map(cell, totals(claimed).values()))
    return shown


def cell(count: Count) -> str:
    colour = "red" if count.lost or count.duplicated else "green"
    return f"[{colour}]{count.lost} · {count.duplicated} · {count.once}[/]"


def totals(results: Sequence[ScenarioCounts]) -> dict[str, Count]:
    return {title: sum((result.counts[title] for result in results), Count(0, 0, 0)) for title in DESIGNS}


def broken(results: Sequence[ScenarioCounts]) -> list[str]:
    """Scenarios in which our design broke its promise. It never loses a text, not even where a second one may come."""
    ours = [(result, result.counts["ledger and asking"]) for result in results]
    return [result.fault for result, count in ours if count.lost or (count.duplicated and not result.remains)]


@click.command("sms")
@click.option(
    "--messages", type=click.IntRange(1, MOST_PEOPLE), default=10, show_default=True, help="People for each fault."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Decides whom each fault hits.")
@json_option
def main(messages: int, seed: int, as_json: bool) -> None:
    """Compare three designs of sending a text under the same faults: who gets it once, twice, or never?"""
    configure("quest", "CRITICAL")
    half = f"{messages} people each; about half of them are hit (seed {seed})"
    click.echo(f"{len(DESIGNS)} designs, {len(SCENARIOS)} faults, {half}", err=True)
    results = count(compare(all_hits(messages, seed), list(DESIGNS.values())), messages)
    wrong = broken(results)
    if as_json:
        sums = {title: asdict(count) for title, count in totals(results).items()}
        report = {"seed": seed, "messages": messages, "results": [asdict(result) for result in results], "totals": sums}
        print_json(report | {"broken": wrong})
    else:
        console = make_console()
        console.print()
        console.print(table(results))
        console.print(
            f"\n* what remains: the provider hides a message for longer than the quarantine ({QUARANTINE:g} s here), or"
            "\n  the sender freezes between its check of the clock and its call. See docs/guarantees.md."
        )
    if wrong:
        click.echo(f"our design broke its promise under: {', '.join(wrong)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main(prog_name="fern quest sms")

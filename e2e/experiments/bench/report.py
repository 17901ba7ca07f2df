"""The report of `fern bench`: a table for the terminal and for the documentation, and JSON."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from e2e.experiments.bench.calibration import Calibration
from e2e.experiments.bench.runner import Figure
from e2e.experiments.bench.stage import Options
from fern.output import print_table

TIMES = "\N{MULTIPLICATION SIGN}"
HEADING = ["stage", "case", "median", "CPU", "ratio", "spread", "goal", ""]


@dataclass(frozen=True, slots=True)
class BenchReport:
    """`doubts` say why the ratios cannot be trusted; empty if they can."""

    figures: Sequence[Figure]
    before: Calibration
    after: Calibration
    doubts: Sequence[str]
    postgres: str
    options: Options

    @property
    def work(self) -> str:
        """How much was measured, in words. A run with less than the usual work is less precise."""
        tables = "full tables" if self.options.rows else "small tables"
        rounds = "1 round" if self.options.rounds == 1 else f"up to {self.options.rounds} rounds"
        return f"{rounds}, {self.options.scale:g} of the usual work, {tables}, {self.options.seconds:g} s of light load"

    def to_json(self) -> dict[str, Any]:
        return {
            "machine": machine(self.postgres),
            "work": self.work,
            "calibration": {"before": asdict(self.before), "after": asdict(self.after), "doubts": list(self.doubts)},
            "figures": [
                {
                    "stage": one.stage,
                    "case": one.name,
                    "title": one.case.title,
                    "unit": one.case.unit,
                    "values": one.values,
                    "value": one.value,
                    "against": one.case.against or None,
                    "ratios": one.ratios,
                    "ratio": one.ratio,
                    "cpu_microseconds": one.cpu,
                    "goal": one.case.goal,
                    "reached": one.reached,
                }
                for one in self.figures
            ],
        }


def machine(postgres: str) -> str:
    """The machine of the run, in one line."""
    return (
        f"{os.cpu_count()} cores ({_processor()}), {_memory_gb():.0f} GB of memory, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, PostgreSQL {postgres} with fsync"
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def rows(figures: Sequence[Figure]) -> list[list[str]]:
    return [
        [
            one.stage,
            one.case.title,
            f"{_number(one.value)} {one.case.unit}",
            f"{_number(one.cpu)} µs" if one.cpu is not None else "",
            f"{one.ratio:.2f} {TIMES}" if one.ratio is not None else "",
            _spread(one.ratios or one.values),
            _goal(one),
            {True: "reached", False: "missed", None: ""}[one.reached],
        ]
        for one in figures
    ]


def _spread(values: Sequence[float]) -> str:
    return f"{_number(min(values))} to {_number(max(values))}" if len(values) > 1 else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _goal(figure: Figure) -> str:
    if figure.case.goal is None:
        return ""
    unit = TIMES if figure.ratios else figure.case.unit
    return f"{'≤' if figure.case.lower else '≥'} {figure.case.goal:g} {unit}"


def show(report: BenchReport) -> None:
    print_table(" | ".join(HEADING), rows(report.figures))
    click.echo(f"\n{machine(report.postgres)}; {report.work}")


def section(report: BenchReport) -> str:
    """The section for the documentation."""
    lines = [f"| {' | '.join(cell or ' ' for cell in row)} |" for row in rows(report.figures)]
    return "\n".join(
        [
            "![How much faster than the articles' designs ours is, and where the limit lies.](images/performance.svg)",
            "",
            f"Measured on {machine(report.postgres)}: {report.work}.",
            *(f"The ratios are not reliable: {doubt}." for doubt in report.doubts),
            "",
            f"| {' | '.join(HEADING)} |",
            "|---|---|--:|--:|--:|---|---|---|",
            *lines,
        ]
    )

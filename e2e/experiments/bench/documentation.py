"""Writes the table and the chart of a run into the documentation, between two markers."""

from pathlib import Path

from e2e.experiments.bench.chart import svg
from e2e.experiments.bench.report import BenchReport, section
from fern.settings import PROJECT_ROOT

PAGE, CHART = PROJECT_ROOT / "docs" / "performance.md", PROJECT_ROOT / "docs" / "images" / "performance.svg"
BEGIN, END = "<!-- begin: written by `fern bench --write-docs` -->", "<!-- end -->"


def pages(report: BenchReport) -> dict[Path, str]:
    """What the page and the chart contain after this run."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return {PAGE: f"{before}{BEGIN}\n\n{section(report)}\n\n{END}{after}", CHART: svg(report.figures)}


def write(report: BenchReport) -> None:
    for path, text in pages(report).items():
        path.write_text(text)

"""What commands print: tables, JSON and progress."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import reduce
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


class Group(click.Group):
    """Lists its commands with whole sentences: click cuts them to one line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(limit=200)) for name, one in sorted(self.commands.items())]
            )


def options(*decorators: Callable[..., Any]) -> Callable[..., Any]:
    """Several options or arguments as one decorator."""
    return lambda command: reduce(lambda decorated, decorator: decorator(decorated), reversed(decorators), command)


def limit_option(default: int, what: str) -> Callable[..., Any]:
    return click.option("--limit", type=click.IntRange(1, 1000), default=default, show_default=True, help=what)


def make_console(*, quiet: bool = False) -> Console:
    """A console that fits the terminal. When piped, lines are as long as they need to be."""
    console = Console(highlight=False, quiet=quiet)
    return console if console.is_terminal else Console(highlight=False, quiet=quiet, width=1000)


def print_json(content: Any) -> None:
    click.echo(json.dumps(content, indent=2))


def print_table(columns: str, rows: Iterable[Iterable[object]], *, empty: str = "") -> None:
    """`columns` has the headings, separated by " | ". None is an empty cell. `empty` is printed if there are no rows."""
    table = Table(*columns.split(" | "), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    make_console().print(table if table.row_count else empty)


@contextmanager
def counting(title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Shows how much is done, on standard error and in a terminal only, so that the output is the same everywhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)


class Progress:
    """One line for each step with the time it took; in a terminal also a spinner while it runs."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            with self.waiting(title):
                yield
        except BaseException:
            self._line("[red]✗[/]", title, started)
            raise
        self.done(title, started)

    @contextmanager
    def waiting(self, title: str) -> Iterator[None]:
        """Show only the spinner, for work that reports its own steps."""
        with self.console.status(title) if self.console.is_terminal else nullcontext():
            yield

    def done(self, title: str, started: float) -> None:
        self._line("[green]✓[/]", title, started)

    def _line(self, mark: str, title: str, started: float) -> None:
        self.console.print(f"{mark} {title:<28} [dim]{time.monotonic() - started:5.1f} s[/]", highlight=False)

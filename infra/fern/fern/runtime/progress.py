"""One line per step with the time it took; in a terminal also a spinner while it runs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


def make_console(*, quiet: bool = False) -> Console:
    """Fits the terminal; when piped, lines are as long as they need to be."""
    console = Console(highlight=False, quiet=quiet)
    return console if console.is_terminal else Console(highlight=False, quiet=quiet, width=1000)


class Progress:
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
        """Only the spinner, for work that reports its own steps."""
        if self.console.is_terminal:
            with self.console.status(title):
                yield
        else:
            yield

    def done(self, title: str, started: float) -> None:
        self._line("[green]✓[/]", title, started)

    def _line(self, mark: str, title: str, started: float) -> None:
        self.console.print(f"{mark} {title:<28} [dim]{time.monotonic() - started:5.1f} s[/]", highlight=False)

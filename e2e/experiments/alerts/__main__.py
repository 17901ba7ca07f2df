"""`fern alerts`: break a running system for each alert, wait until it fires, repair it, and wait until it clears.

The system is one of its own, with every process of both services. The queries of infra/observability/alerts.toml are evaluated on
what their `/metrics` show. For the rules two scrapes are 30 s apart, and ages are 60 times as old, so that an hour takes seconds.

Exit code 38 if an alert did not fire or did not clear.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import click

from e2e.experiments.alerts.breakages import ENVIRONMENT, Breakage, Breakages
from e2e.experiments.alerts.watch import Watch
from e2e.support.databases import fresh_databases, migrated_server
from e2e.support.waiting import PATIENCE, until
from e2e.support.world import BEGUN, World, running_world
from fern.errors import FernError
from fern.observability import alerts
from fern.output import json_option, print_json, print_table
from fern.runtime.postgres import TemporaryServer


class NotFired(FernError):
    exit_code = 38


@dataclass(frozen=True)
class Result:
    """Seconds of the rules' clock, from the fault until the alert fired, and from the repair until it was clear."""

    alert: str
    broken_by: str
    fired_after: int
    cleared_after: int


@contextmanager
def alerts_world(directory: Path, urls: dict[str, str]) -> Iterator[World]:
    """A system in which something has happened already, as in one that has been running for a while."""
    with running_world(directory / "home", urls, environment=ENVIRONMENT) as world:
        labour = world.plan("Grace", "Alan")
        world.begin(labour)
        world.until_everyone_is_told(labour, BEGUN)
        yield world


class Experiment:
    """`patience` is how many seconds an alert may take: it ends a run that has failed, and decides nothing else."""

    def __init__(self, world: World, patience: float) -> None:
        self._world, self._patience = world, patience
        self._watch = Watch(world, alerts())
        self._broken, self._repaired = dict[str, float](), dict[str, float]()

    def run(self) -> list[Result]:
        slow, groups = Breakages(self._world).groups()
        self._until(lambda: self._watch.now >= 300, "scrapes of a healthy system")
        for one in slow:
            self._begin(one)
        for group in groups:
            for one in group:
                self._begin(one)
            self._repair(group)
        self._repair(slow)
        return [self._result(one, alert) for one in [*slow, *chain(*groups)] for alert in one.alerts]

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self._watch.scrape()
            return holds()

        until(look, what=what, seconds=self._patience)

    def _begin(self, one: Breakage) -> None:
        self._until(lambda: not any(map(self._watch.fires, one.alerts)), f"clear: {', '.join(one.alerts)}")
        self._broken |= dict.fromkeys(one.alerts, self._watch.now)
        one.begin()

    def _repair(self, group: Sequence[Breakage]) -> None:
        """Repair each fault of the group as soon as its alerts have fired."""
        for one in group:

            def fired() -> bool:
                for other in group:
                    if not self._have_fired(other):
                        other.again()
                return self._have_fired(one)  # noqa: B023

            self._until(fired, f"fire: {', '.join(one.alerts)}")
            click.echo(f"fired: {', '.join(one.alerts)}", err=True)
            one.repair()
            self._repaired |= dict.fromkeys(one.alerts, self._watch.now)

    def _have_fired(self, one: Breakage) -> bool:
        return all(self._watch.first(alert, fires=True, after=self._broken[alert]) for alert in one.alerts)

    def _result(self, one: Breakage, alert: str) -> Result:
        self._until(lambda: not self._watch.fires(alert), f"clear: {alert}")
        broken, repaired = self._broken[alert], self._repaired[alert]
        fired = self._watch.first(alert, fires=True, after=broken) or broken
        cleared = (
            self._watch.first(alert, fires=False, after=repaired) or repaired
        )  # it may have cleared by itself before
        return Result(alert, one.how, round(fired - broken), round(cleared - repaired))


def run(postgres: TemporaryServer | None = None, *, patience: float = PATIENCE) -> list[Result]:
    """Run the experiment on `postgres`, or on a server of its own."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fern-alerts-")))
        directory.chmod(0o711)  # so that the server's user reaches its data
        server = postgres or stack.enter_context(migrated_server(directory))
        urls = asyncio.run(fresh_databases(server))
        return Experiment(stack.enter_context(alerts_world(directory, urls)), patience).run()


@click.command("alerts")
@click.option("--patience", default=PATIENCE, show_default=True, help="Seconds that the alerts of a fault may take.")
@json_option
def main(patience: float, as_json: bool) -> None:
    """Break a system for each alert, and wait until the alert fires and, after the repair, clears."""
    try:
        results = run(patience=patience)
    except AssertionError as error:
        raise NotFired(f"an alert did not do what it should: {error}", command="fern alerts") from error
    if as_json:
        print_json([asdict(one) for one in results])
        return
    print_table(
        "alert | broken by | fires after s | clears after s",
        ((one.alert, one.broken_by, one.fired_after, one.cleared_after) for one in results),
    )
    click.echo(f"{len(results)} alerts fired and cleared.")


if __name__ == "__main__":
    main(prog_name="fern alerts")

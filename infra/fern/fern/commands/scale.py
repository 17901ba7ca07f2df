"""`fern scale`: how many of each process run on this machine."""

from dataclasses import replace

import click

from fern.errors import CannotScale
from fern.overrides import Overrides
from fern.runtime.processes import processes
from fern.runtime.system import change
from fern.settings import Settings

MOST = 10


@click.command()
@click.argument("counts", nargs=-1, required=True, metavar="PROCESS=COUNT...")
def scale(counts: tuple[str, ...]) -> None:
    """Run COUNT of a process, from 0 to 10. The replicas are called PROCESS, PROCESS-2 and so on.

    For example: fern scale notification-consumer=3 labour-relay=2

    Processes that are no longer wanted finish their work and stop. The numbers are kept over `fern down` and `fern up`, until
    they are changed or `fern reset` forgets them.
    """
    settings = Settings.load()
    overrides = Overrides.load(settings)
    wanted = dict(_count(text, settings) for text in counts)
    replicas = {name: count for name, count in {**overrides.replicas, **wanted}.items() if count != 1}
    running = change(settings, replace(overrides, replicas=replicas))
    for name, count in wanted.items():
        click.echo(f"{name}: {count} {'running' if running else 'from the next `fern up` on'}")


def _count(text: str, settings: Settings) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not count.isdigit() or int(count) > MOST:
        what = f"{text} is not PROCESS=COUNT with a count from 0 to {MOST}."
        raise CannotScale(what, command="fern scale notification-consumer=3")
    ours = {process.name: process for process in processes(settings)}
    workers = [each for each, process in ours.items() if process.heartbeat and not each[-1].isdigit()]
    if name in ours and ours[name].health_url:
        what = f"{name} cannot be scaled here: it listens on one port. In production, run many behind a load balancer."
        raise CannotScale(what)
    if name not in workers:
        raise CannotScale(f"{name} cannot be scaled; these can: {', '.join(workers)}.", command="fern status")
    return name, int(count)

"""`fern bench --profile STAGE`: the functions in which our side of a stage spends its time."""

import pstats
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from e2e.experiments.bench.environment import Environment
from e2e.experiments.bench.stage import Options, Stage
from fern.output import print_table
from fern.settings import PROJECT_ROOT

SHOWN = 30


def show(environment: Environment, stage: Stage, options: Options, say: Callable[[str], None]) -> None:
    """Run one round under cProfile, which makes every call slower: the shares count, not the seconds."""
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "profile")
        with ExitStack() as stack:
            local = replace(environment, stack=stack)
            say(f"{stage.name}: preparing")
            measure = stack.enter_context(stage.open(local, replace(options, rounds=1, profile=path)))
            say(f"{stage.name}: measuring under the profiler")
            measure(0)
        costs: Any = pstats.Stats(path)
    total = costs.total_tt
    for title, column in (("own time", 2), ("time with callees", 3)):
        costliest = sorted(costs.stats.items(), key=lambda item: item[1][column], reverse=True)[:SHOWN]
        click.echo(f"\n{stage.title}: functions by {title}, {total:.2f} s in all\n")
        print_table(
            "own ms | with callees ms | share | calls | function",
            [
                (f"{own * 1000:.1f}", f"{whole * 1000:.1f}", f"{cost[column] / total:.1%}", calls, _name(function))
                for function, cost in costliest
                for _, calls, own, whole, _ in [cost]
            ],
        )


def _name(function: tuple[str, int, str]) -> str:
    path, line, name = function
    if not line:
        return name.replace("[", "(").replace("]", ")")
    short = path.rpartition("site-packages/")[2] if "site-packages" in path else path.removeprefix(f"{PROJECT_ROOT}/")
    return f"{short}:{line} {name}"

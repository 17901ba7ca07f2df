"""`fern bench --profile STAGE`: the functions in which our side of a stage spends its CPU time."""

import json
import sysconfig
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

SHOWN = 25


def profile(environment: Environment, stage: Stage, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """The result of the sampler, as `Sampler.write` writes it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "profile"
        with ExitStack() as stack:
            local = replace(environment, stack=stack)
            say(f"{stage.name}: preparing")
            measure = stack.enter_context(stage.open(local, replace(options, rounds=2, profile=str(path))))
            say(f"{stage.name}: measuring under the profiler")
            for number in range(2):  # the second one counts: everything is imported and warm
                measure(number)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def show(title: str, found: dict[str, Any]) -> None:
    samples, everything = max(found["samples"], 1), found["functions"]
    services = [one for one in everything if _place(one).startswith(("services/", "shared/"))]
    for column, functions, which in (
        ("own", everything, "all functions, by the time in themselves"),
        ("whole", services, "functions of the services, by the time with all that they call"),
    ):
        click.echo(f"\n{title}: {which}, as shares of the CPU time ({samples} samples)\n")
        costliest = sorted(functions, key=lambda one: one[column], reverse=True)[:SHOWN]
        rows = [
            (f"{one['own'] / samples:.1%}", f"{one['whole'] / samples:.1%}", one["name"], _place(one))
            for one in costliest
        ]
        print_table("own | with callees | function | file", rows)


def _place(function: dict[str, Any]) -> str:
    path = function["file"].removeprefix(f"{PROJECT_ROOT}/").removeprefix(sysconfig.get_path("stdlib") + "/")
    return f"{path.rpartition('site-packages/')[2]}:{function['line']}"

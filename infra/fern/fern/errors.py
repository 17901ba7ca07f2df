"""The errors of the `fern` command. Each has a message, a command to copy, and its own exit code.

FernError                    1  any other failure, such as a demo with a missing or a second text
├── PortTaken               10  another program listens on a port of ours
├── DockerSilent            11  the Docker engine accepts connections but does not answer
├── PythonUnsupported       12  too old or too new (`make` checks this too, before it makes .venv)
├── DiskFull                13
├── StaleProcess            14  processes of an earlier run are left without their supervisor
├── NeverHealthy            15  a process started but did not become healthy in time
├── DockerUnusable          16  no Docker engine is running, or it is too old
├── PostgresUnusable        17  the embedded server cannot be used: no binaries, data of another version, no connection
├── JobFailed               18  a migration, the topology or a compose command failed
├── NotRunning              19  the command needs a running system
├── NotClean                20  an audit found lost, duplicated, misordered, unexplained or stuck events or texts
├── ContractBroken          25  an event no longer matches its released schema
├── Late                    26  an audit found events or texts that are late, and nothing worse
├── BalanceWrong            27  a balance of the statistics is not the sum of its postings
├── TopologyInvalid         29  topology.toml, or an override of it, cannot be applied
├── CannotScale             30  this process, or this number of it, cannot run on this machine
├── HomeUnusable            35  FERN_HOME cannot be written to
├── OnlyLocal               36  the command works on this machine only, and another context was chosen
└── ContextInvalid          37  the context is not declared, is incomplete, or its token cannot be used

`fern museum` ends with 21 if a mistake was not detected. `fern bench` ends with 23 if the machine was too busy to compare,
and with 24 if a design did not do the work that it was measured for. `fern soak` ends with 28 if something grows.
`fern contracts check` ends with 31 if an event is incomplete, `fern fairness` with 34 if a birth waited too long, and
`fern alerts` with 38 if an alert did not fire or clear.

`make` itself ends with 2 whatever failed, so an error names its code. Scripts call `.venv/bin/fern`, which ends with it.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import IO, Any

import click

from fern.command_list import OPERATE, SECTIONS

LOCAL = "local"  # the context of the system on this machine


class FernError(click.ClickException):
    exit_code = 1

    def __init__(self, what: str, *, command: str | None = None, details: str = "") -> None:
        """`details` are printed below the message, such as the end of a log."""
        super().__init__(what)
        self.command = _copyable(command) if command else None
        self.details = details
        if details:
            self.add_note(details)  # so that a traceback shows them as well

    def show(self, file: IO[Any] | None = None) -> None:
        code = f" (exit code {self.exit_code})" if self.exit_code > 1 else ""
        click.echo(click.style("error: ", fg="red", bold=True) + self.message + code, err=True, file=file)
        if self.details:
            click.echo("\n".join(f"  | {line}" for line in self.details.splitlines()), err=True, file=file)
        if self.command:
            click.echo("try:   " + click.style(self.command, bold=True), err=True, file=file)


def _copyable(command: str) -> str | None:
    """The command with the chosen context, and with the path of `fern` if the virtual environment is not activated. None if the
    command does not work in this context.
    """
    if not command.startswith("fern "):
        return command
    program = "fern" if shutil.which("fern") else os.path.relpath(Path(sys.executable).with_name("fern"))
    context, rest = os.environ.get("FERN_CONTEXT") or LOCAL, command.removeprefix("fern ")
    if context == LOCAL or rest.startswith("--context"):
        return f"{program} {rest}"
    return f"{program} --context {context} {rest}" if rest.split()[0] in SECTIONS[OPERATE] else None


class PortTaken(FernError):
    exit_code = 10


class DockerSilent(FernError):
    exit_code = 11


class PythonUnsupported(FernError):
    exit_code = 12


class DiskFull(FernError):
    exit_code = 13

    def __init__(self, path: Path, free_bytes: int) -> None:
        super().__init__(f"no room left at {path}: {free_bytes // 2**20} MB free.", command=f"df -h {path}")


class StaleProcess(FernError):
    exit_code = 14


class NeverHealthy(FernError):
    exit_code = 15


class DockerUnusable(FernError):
    exit_code = 16


class PostgresUnusable(FernError):
    exit_code = 17


class JobFailed(FernError):
    exit_code = 18


class NotRunning(FernError):
    exit_code = 19


class NotClean(FernError):
    exit_code = 20


class ContractBroken(FernError):
    exit_code = 25


class Late(FernError):
    exit_code = 26


class BalanceWrong(FernError):
    exit_code = 27


class TopologyInvalid(FernError):
    exit_code = 29


class CannotScale(FernError):
    exit_code = 30


class HomeUnusable(FernError):
    exit_code = 35


class OnlyLocal(FernError):
    exit_code = 36


class ContextInvalid(FernError):
    exit_code = 37

"""Parts of the tests of `fern scale` and `fern consent`."""

from rich.console import Console

from fern.output import Progress
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.processes import Process
from fern.runtime.supervisor import Supervisor
from fern.settings import Settings


def adjusted(settings: Settings, *wanted: Process) -> EmbeddedRuntime:
    """The runtime of a system whose processes are now these, after it has adjusted what runs."""
    runtime = EmbeddedRuntime(settings, Progress(Console(quiet=True)))
    runtime.processes = list(wanted)
    runtime.supervisor = Supervisor(settings, wanted)
    runtime.adjust()
    return runtime

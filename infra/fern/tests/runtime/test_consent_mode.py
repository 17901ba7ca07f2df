"""`fern consent`: the mode is kept, and the processes that need it are started again with it."""

from dataclasses import replace

import psutil
from click.testing import CliRunner

from fern.cli import main
from fern.overrides import Overrides
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.processes import processes
from fern.settings import Settings

from .runtime_parts import adjusted


def modes(settings: Settings) -> dict[str, str]:
    return {one.name: one.environment["SMS_CONSENT"] for one in processes(settings) if "SMS_CONSENT" in one.environment}


def test_the_mode_is_kept_until_it_is_changed(settings: Settings) -> None:
    fern = CliRunner()
    assert modes(settings) == {"notification-api": "assumed", "notification-consumer": "assumed"}

    switched = fern.invoke(main, ["consent", "required"])
    assert switched.output.endswith("until they say YES, from the next `fern up` on\n")
    assert modes(settings) == {"notification-api": "required", "notification-consumer": "required"}
    assert fern.invoke(main, ["consent"]).output.startswith("consent is required: ")

    fern.invoke(main, ["consent", "assumed"])
    assert Overrides.load(settings) == Overrides()


def test_a_process_with_other_variables_is_started_again_and_the_others_go_on(
    runtime: EmbeddedRuntime, settings: Settings
) -> None:
    (worker,) = runtime.processes
    other = replace(worker, name="other", heartbeat=settings.heartbeat("other"))
    runtime.supervisor.start_daemon()
    before = adjusted(settings, worker, other).supervisor.states()

    after = adjusted(settings, worker, replace(other, environment={"SMS_CONSENT": "required"})).supervisor.states()

    assert after["worker"].pid == before["worker"].pid
    assert after["other"].pid != before["other"].pid
    assert psutil.Process(after["other"].pid).environ()["SMS_CONSENT"] == "required"

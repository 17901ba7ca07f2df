"""Every process is on the console, and is killed at its fault points. A consumer knows which delivery is the last."""

from e2e.experiments import crash_points
from fern.runtime.processes import processes
from fern.settings import PROJECT_ROOT, Settings
from fern.topology import Declared
from messaging.consumer import LAST_DELIVERY


def test_every_process_of_a_service_is_on_the_console_and_is_killed_at_its_fault_points() -> None:
    services = {process.name for process in processes(Settings(1024, PROJECT_ROOT)) if process.stage == "service"}
    page = (PROJECT_ROOT / "infra/fern/fern/console/page/stations.js").read_text()

    assert services == crash_points.PROCESSES.keys()
    assert [name for name in services if f'"{name}":' not in page] == []


def test_a_consumer_counts_a_dead_letter_at_the_last_delivery_of_a_subscription() -> None:
    assert Declared.load().options["max_delivery_attempts"] == LAST_DELIVERY

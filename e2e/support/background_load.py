"""Load on a system while a test runs: labours that are planned and completed."""

import contextlib
import threading

import httpx

from e2e.support.waiting import until
from e2e.support.world import COMPLETE, PlannedLabour, World


class BackgroundLoad:
    """A thread that plans and completes labours one after the other. It repeats each completion until it is answered."""

    def __init__(self, world: World) -> None:
        self._world, self._stop = world, threading.Event()
        self.labours = list[PlannedLabour]()
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            try:
                labour = self._world.plan("Grace")
            except httpx.HTTPError:
                continue  # without an answer its id is unknown, and no one waits for its end
            self.labours.append(labour)
            until(lambda: self._is_complete(labour), what="a completion is answered")  # noqa: B023

    def _is_complete(self, labour: PlannedLabour) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            self._world.complete(labour)
            return True
        return False

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def assert_everyone_is_told_once(self) -> None:
        self.stop()
        ids = [labour.id for labour in self.labours]
        states = "SELECT state FROM notification WHERE labour_id = ANY($1)"

        def settled() -> bool:
            found = [row["state"] for row in self._world.sql("notification", states, ids)]
            return len(found) == len(ids) and set(found) <= {"SENT", "DELIVERED"}

        assert ids
        until(settled, what="everyone is told")
        for labour in self.labours:
            assert self._world.texts(labour) == {"Grace": [COMPLETE]}

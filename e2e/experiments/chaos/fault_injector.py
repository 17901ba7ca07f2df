"""The fault injector: starts each fault of a schedule, and ends it when its time is over.

On a slow machine faults start later than scheduled, and those that would start after the end are skipped: a killed process is
given time to become healthy before the next one is killed, because a system that is down altogether can lose nothing.

It also supervises: a process that ends by itself is started again, and reported, because none should.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from e2e.experiments.chaos.database_faults import DatabaseFaults
from e2e.experiments.chaos.environment import ChaosWorld
from e2e.experiments.chaos.load_generator import ClientLog
from e2e.experiments.chaos.process_faults import ProcessFaults
from e2e.experiments.chaos.schedule import LANES, FaultKind, ScheduledFault
from e2e.experiments.chaos.traffic_faults import TrafficFaults

POLL_SECONDS = 0.2
# Of each kind: what is wrong with the target meanwhile, and what such faults are called in the account.
LABELS: dict[FaultKind, tuple[str, str]] = {
    "kill": ("dead", "kills"),
    "freeze": ("frozen", "freezes"),
    "database": ("restart of the database", "restarts of the database"),
    "cut": ("cut off", "cuts of connections"),
    "bus": ("(bus)", "faults of the bus"),
    "sms": ("(sms)", "faults of the provider"),
    "poison": ("poisoned", "poison messages"),
    "silence": ("has silent connections", "silent connections"),
    "read-only": ("read-only", "read-only databases"),
    "full-disk": ("without room", "full disks"),
    "lock": ("locked", "locked tables"),
    "connections": ("without connections", "connection limits"),
    "overload": ("overloaded", "overloads"),
    "poison-burst": ("flooded with poison", "bursts of poison"),
    "long-freeze": ("frozen for long", "freezes beyond every lease"),
    "clock": ("with a wrong clock", "wrong clocks"),
}


class FaultInjector:
    """`active` always holds the faults of this moment.

    After `run`: `injected` counts the faults that took effect, `died` names the processes that ended by themselves, and `poison`
    has the ids of the invalid messages that were published.
    """

    def __init__(self, chaos: ChaosWorld, log: ClientLog, seed: int, active: set[str]) -> None:
        self._world, self._log, self._active = chaos.world, log, active
        self._processes = processes = ProcessFaults(chaos.world)
        self._traffic = traffic = TrafficFaults(chaos.world, log, seed)
        database = DatabaseFaults(chaos.server, chaos.proxies, chaos.disk)
        self._inject: dict[FaultKind, Callable[[ScheduledFault], Awaitable[bool]]] = {
            "kill": processes.kill,
            "freeze": processes.freeze,
            "long-freeze": processes.freeze_for_long,
            "clock": processes.shift_clock,
            "database": database.restart,
            "cut": database.cut,
            "silence": database.silence,
            "read-only": database.make_read_only,
            "full-disk": database.fill_disk,
            "lock": database.lock,
            "connections": database.limit_connections,
            "bus": traffic.switch,
            "sms": traffic.switch,
            "poison": traffic.publish_poison,
            "poison-burst": traffic.publish_poison,
            "overload": traffic.overload,
        }
        self.injected = Counter[str]()
        self.died: list[str] = []

    @property
    def poison(self) -> set[str]:
        return self._traffic.poison

    async def run(self, actions: Sequence[ScheduledFault], seconds: float) -> None:
        """Inject faults for this long. Returns when all of them have ended."""
        began = _now()
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(asyncio.sleep(seconds))
            for lane in LANES:
                faults = [action for action in actions if action.kind in lane]
                lanes.create_task(self._run_in_turn(faults, began, began + seconds))

    async def close(self) -> None:
        await self._traffic.close()

    async def _run_in_turn(self, actions: Sequence[ScheduledFault], began: float, end: float) -> None:
        for action in actions:
            await asyncio.sleep(began + action.at - _now())
            if _now() > end:
                return
            await self.inject(action)
            await self.settle(action)

    async def inject(self, action: ScheduledFault) -> bool:
        """Inject a fault, and return when it has ended: True if it took effect."""
        state, name = LABELS[action.kind]
        label = f"{action.target} {state}"
        self._active.add(label)
        self._log.clocks_differ |= action.kind == "clock" and action.target.startswith("labour-api")
        try:
            took_effect = await self._inject[action.kind](action)
            self.injected[name] += took_effect
            return took_effect
        finally:
            self._active.discard(label)

    async def settle(self, action: ScheduledFault) -> None:
        """Wait until a process that was started again is healthy."""
        if action.kind in ("kill", "clock"):
            await self._processes.until_healthy(action)

    def _last_line(self, name: str) -> str:
        lines = self._world.settings.log(name).read_text(errors="replace").splitlines()
        return lines[-1][-500:] if lines else "its log is empty."

    async def supervise(self) -> None:
        """Restart processes that end by themselves, until cancelled."""
        while True:
            for name in self._world.started:
                if name not in self._processes.down and self._world.is_dead(name):
                    self.died.append(f"{name} ended by itself: {self._last_line(name)}")
                    self._world.spawn(name)
            await asyncio.sleep(POLL_SECONDS)


def _now() -> float:
    return asyncio.get_running_loop().time()

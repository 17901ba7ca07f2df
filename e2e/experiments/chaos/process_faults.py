"""Faults of processes: kill, freeze, and restart with a wrong clock."""

import asyncio
from contextlib import suppress
from functools import partial

from e2e.experiments.chaos.schedule import ScheduledFault
from e2e.support.waiting import eventually
from e2e.support.world import World

HEALTHY_WITHIN = 30.0  # seconds for a killed process, before the next one is killed
SENDER = "notification-dispatcher"


class ProcessFaults:
    """`down` has the processes that are dead on purpose. Each fault returns when it has ended: True if it took effect."""

    def __init__(self, world: World) -> None:
        self._world, self._frozen, self.down = world, set[str](), set[str]()

    async def kill(self, action: ScheduledFault) -> bool:
        if action.target in self.down:
            return False
        await self._kill(action.target)
        await asyncio.sleep(action.seconds)
        self._spawn(action.target)
        return True

    async def freeze(self, action: ScheduledFault) -> bool:
        if action.target in self.down | self._frozen or self._world.is_dead(action.target):
            return False
        self._frozen.add(action.target)
        self._world.freeze(action.target)
        await asyncio.sleep(action.seconds)
        self._resume(action.target)
        return True

    async def freeze_for_long(self, action: ScheduledFault) -> bool:
        """Freeze a process for longer than every lease and the quarantine. A dispatcher is frozen while no message is SENDING:
        then it is certain that it is not between its check of the clock and the request.
        """
        if not action.target.startswith(SENDER):
            return await self.freeze(action)
        end = asyncio.get_running_loop().time() + action.seconds
        while action.target not in self.down | self._frozen and not self._world.is_dead(action.target):
            self._frozen.add(action.target)
            self._world.freeze(action.target)
            if not await asyncio.to_thread(self._is_sending):
                await asyncio.sleep(action.seconds)
                self._resume(action.target)
                return True
            self._resume(action.target)
            if asyncio.get_running_loop().time() > end:
                return False
            await asyncio.sleep(0.1)
        return False

    def _is_sending(self) -> bool:
        try:
            return self._world.count("notification", "notification WHERE state = 'SENDING'") > 0
        except Exception:  # the database has a fault as well: it is unknown
            return True

    async def shift_clock(self, action: ScheduledFault) -> bool:
        """Restart the process with a clock that is wrong by hours or months, and later with the right one."""
        if action.target in self.down:
            return False
        await self._kill(action.target)
        self._spawn(action.target, FERN_CLOCK_OFFSET=str(action.options["offset"]))
        await self.until_healthy(action)
        await asyncio.sleep(action.seconds)
        if action.target in self.down:
            return True  # killed meanwhile, and therefore started again with the right clock
        await self._kill(action.target)
        self._spawn(action.target)
        return True

    async def until_healthy(self, action: ScheduledFault) -> None:
        """Give a process time before the next one is killed: a system that is down altogether can lose nothing."""
        with suppress(AssertionError):  # then the run continues without it
            healthy = partial(asyncio.to_thread, self._world.is_healthy, action.target)
            await eventually(healthy, what=f"{action.target} is healthy", seconds=HEALTHY_WITHIN)

    async def _kill(self, name: str) -> None:
        self.down.add(name)
        await asyncio.to_thread(self._world.kill, name)

    def _spawn(self, name: str, **environment: str) -> None:
        self._world.spawn(name, environment)
        self.down.discard(name)

    def _resume(self, name: str) -> None:
        self._world.resume(name)  # if it was killed meanwhile, the signal does not harm its successor
        self._frozen.discard(name)

"""What happens to the replicas: kills and freezes, at random times."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import shared.checkout  # noqa: F401  # finds tests.support

from tests.support.service_process import ServiceProcess

FREEZE_S = (0.5, 6.0)
"""Shorter than the silence after which a replica is given up (orchestrator.silence_timeout_s), and longer."""
RESTART_DELAY_S = (0.0, 1.0)


class Faults:
    """Strikes when so many requests have ended; what it struck comes back."""

    def __init__(
        self,
        replicas: list[ServiceProcess],
        num_ended: Callable[[], int],
        *,
        kills: int,
        freezes: int,
        last: int,
        seed: int,
    ) -> None:
        """last: no fault strikes after this many requests have ended."""
        self.done: Counter[str] = Counter()
        """Strikes by kind and pool."""
        self._dice = random.Random(seed)
        self._replicas = replicas
        self._num_ended = num_ended
        kinds = ["kill"] * kills + ["freeze"] * freezes
        self._dice.shuffle(kinds)
        times = sorted(self._dice.randint(1, last) for _ in kinds)
        self._plan = list(zip(times, kinds, strict=True))
        self._struck: set[ServiceProcess] = set()

    async def run(self) -> None:
        """Returns when all faults have struck and every replica is back."""
        async with asyncio.TaskGroup() as group:
            for time, kind in self._plan:
                while self._num_ended() < time or len(self._struck) == len(self._replicas):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                victim = self._dice.choice([member for member in self._replicas if member not in self._struck])
                self._struck.add(victim)
                self.done[f"{kind} of a {victim.service.removesuffix('_service')}"] += 1
                group.create_task(self._kill(victim) if kind == "kill" else self._freeze(victim))

    async def _kill(self, victim: ServiceProcess) -> None:
        victim.kill()
        await asyncio.sleep(self._dice.uniform(*RESTART_DELAY_S))
        victim.start()
        await asyncio.to_thread(victim.wait_listening)
        self._struck.discard(victim)

    async def _freeze(self, victim: ServiceProcess) -> None:
        victim.freeze()
        await asyncio.sleep(self._dice.uniform(*FREEZE_S))
        victim.thaw()
        self._struck.discard(victim)

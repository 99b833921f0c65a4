"""The children of `pilotfish up`, from their start until a signal comes or one that is needed dies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pilotfish.child import Child
from pilotfish.errors import UnavailableError

_READY_LINE = re.compile(r"^(?P<service>\w+) ready on (?P<address>\S+)")


@dataclass(frozen=True, kw_only=True)
class ChildSpec:
    """What to run."""

    name: str
    argv: Sequence[str]
    services: frozenset[str]
    """Services whose ready lines it prints."""
    after: frozenset[str] = frozenset()
    """Services that must be ready before it starts."""
    essential: bool = True
    """False: when it ends it is started again; the others go on without it."""
    restarts_once_ready: bool = False
    """An essential one that has been ready is started again, too, and the others wait for it; one that has not is
    of no use to try again."""
    stop_timeout_s: float = 25.0
    """Time from SIGTERM to SIGKILL."""


RESTART_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits between the starts of a child that keeps ending; the last one repeats."""
HEALTHY_S = 60.0
"""A child that has run for so long does not keep ending: the waits begin anew."""


class Supervisor:
    """Starts the children as soon as they may; stops them in reverse order: who calls before who is called."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        environment: Mapping[str, str],
        on_line: Callable[[str, str], None],
        on_ready: Callable[[str, str], None],
    ) -> None:
        """on_line(child name, line) and on_ready(service, address) are called on the event loop."""
        self._specs = specs
        self._environment = environment
        self._on_line = on_line
        self._on_ready = on_ready
        self._ready = {service: asyncio.Event() for spec in specs for service in spec.services}
        self._children: dict[str, Child] = {}

    def pid(self, name: str) -> int:
        """The process of a child that has been started."""
        return self._children[name].pid

    async def run(self, stop: asyncio.Event, force: asyncio.Event) -> None:
        """Run until `stop` is set; no child is left when it returns or raises.

        Setting `force` as well ends a patient stop. Raises UnavailableError when an essential
        child ends.
        """
        keepers = [asyncio.create_task(self._keep(spec)) for spec in self._specs]
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([stopped, *keepers], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()
        finally:
            for task in (stopped, *keepers):
                task.cancel()
            await asyncio.gather(stopped, *keepers, return_exceptions=True)
            for spec in reversed(self._specs):
                if spec.name in self._children:
                    await self._children[spec.name].stop(spec.stop_timeout_s, force)

    async def _keep(self, spec: ChildSpec) -> None:
        """Start a child; start it again as its spec says. Raises when an essential one ends."""
        for service in spec.after:
            await self._ready[service].wait()
        loop, attempt = asyncio.get_running_loop(), 0
        while True:
            started_s = loop.time()
            # Shielded: a cancellation here must not lose a process that was just started.
            take = partial(self._take_line, spec)
            start = asyncio.create_task(Child.start(spec.argv, take, environment=self._environment))
            try:
                child = await asyncio.shield(start)
            except asyncio.CancelledError:
                self._children[spec.name] = await start
                raise
            self._children[spec.name] = child
            status = await child.wait()
            ending = f"was ended by signal {-status}" if status < 0 else f"ended with exit code {status}"
            was_ready = all(self._ready[service].is_set() for service in spec.services)
            if spec.essential and not (spec.restarts_once_ready and was_ready):
                # Who was killed could not say why: its last line is of something else.
                detail = child.last_error.removeprefix("error: ") if status > 0 else ""
                raise UnavailableError(f"{spec.name} {ending}" + (f": {detail}" if detail else ""))
            if loop.time() - started_s >= HEALTHY_S:
                attempt = 0
            delay_s = RESTART_DELAYS_S[min(attempt, len(RESTART_DELAYS_S) - 1)]
            attempt += 1
            meanwhile = "wait for" if spec.essential else "go on without"
            self._on_line(spec.name, f"{ending}; requests {meanwhile} it, next start in {delay_s:g} s")
            await asyncio.sleep(delay_s)

    def _take_line(self, spec: ChildSpec, line: str, is_error: bool) -> None:
        self._on_line(spec.name, line)
        ready = None if is_error else _READY_LINE.match(line)
        if ready and ready["service"] in spec.services:
            self._ready[ready["service"]].set()
            self._on_ready(ready["service"], ready["address"])

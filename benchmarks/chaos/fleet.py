"""The services as processes on fixed ports: killed, frozen and started again at will."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import shared.checkout  # noqa: F401  # finds tests.support

from pilotfish.config import Config, config_to_yaml, environment
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.launch.child import Child, ChildSpec
from pilotfish.launch.specs import free_ports
from pilotfish.launch.tether import tethered
from pilotfish.types import LoadReport
from tests.support.peer import RecordingPeer

Pool = Literal["target", "draft"]

_START_TIMEOUT_S = 60.0
_TRACEBACK_LINES = 60
"""What follows an error in the log."""


class Member:
    """One service process. Its address is the same after a restart."""

    def __init__(self, name: str, service: str, port: int, config_path: Path) -> None:
        self.name = name
        self.service = service
        self.address = f"127.0.0.1:{port}"
        self.errors: list[str] = []
        """What tells of something unforeseen, with the lines after it."""
        self._num_lines_of_error = 0
        """Still to come."""
        setting = f"{service.removesuffix('_service')}.port={port}"
        argv = tethered(service, "--config", str(config_path), "--set", setting)
        self._spec = ChildSpec(name=name, argv=argv, services=frozenset({service}))
        self._child: Child | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def pool(self) -> str:
        return self.service.removesuffix("_service")

    async def start(self) -> None:
        """Returns when it is ready. Raises UnavailableError with its last words."""
        self._ready.clear()
        child = self._child = await Child.start(self._spec, environment(), self._on_line, lambda *_: self._ready.set())
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._ready.wait()
        except TimeoutError:
            raise UnavailableError(f"{self.name} did not start: {child.last_error}") from None
        self._watch = asyncio.create_task(self._note_end(child))

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone. Idempotent."""
        child, self._child = self._child, None
        if self._watch is not None:
            self._watch.cancel()
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            await child.wait()

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def _note_end(self, child: Child) -> None:
        """Nobody ends a service but `kill`."""
        status = await child.wait()
        self.errors.append(f"{self.name} ended by itself with status {status}: {child.last_error}")

    def _on_line(self, _name: str, line: str) -> None:
        if " ERROR " in line or ("Traceback" in line and not self._num_lines_of_error):
            self.errors.append(line)
            self._num_lines_of_error = _TRACEBACK_LINES
        elif self._num_lines_of_error:
            self.errors[-1] += f"\n{line}"
            self._num_lines_of_error -= 1


class Fleet:
    """`async with Fleet(config, ...) as fleet`: everything is ready inside the block, nothing is left after it."""

    def __init__(self, config: Config, *, num_targets: int, num_drafts: int, num_orchestrators: int) -> None:
        """The last of the orchestrators, one more than asked for, has no draft pool."""
        self._folder = tempfile.TemporaryDirectory(prefix="pilotfish-faults-", ignore_cleanup_errors=True)
        self._config = config
        ports = iter(free_ports(num_targets + num_drafts + num_orchestrators + 1))
        folder = Path(self._folder.name)
        pooled, alone = folder / "config.yaml", folder / "no-pool.yaml"
        self.targets = [
            Member(f"target {index}", "target_service", next(ports), pooled) for index in range(num_targets)
        ]
        self.drafts = [Member(f"draft {index}", "draft_service", next(ports), pooled) for index in range(num_drafts)]
        self.orchestrators = [
            Member(f"orchestrator {index}", "orchestrator", next(ports), pooled) for index in range(num_orchestrators)
        ]
        self.without_pool = Member("orchestrator without a draft pool", "orchestrator", next(ports), alone)
        self._write(pooled, [member.address for member in self.drafts])
        self._write(alone, [])

    @property
    def replicas(self) -> list[Member]:
        return [*self.targets, *self.drafts]

    @property
    def members(self) -> list[Member]:
        return [*self.replicas, *self.orchestrators, self.without_pool]

    async def __aenter__(self) -> Self:
        try:
            for group in (self.replicas, [*self.orchestrators, self.without_pool]):
                await asyncio.gather(*(member.start() for member in group))
        except BaseException:
            await self._kill_all()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._kill_all()
        self._folder.cleanup()

    @property
    def errors(self) -> list[str]:
        """What no process should have said or done."""
        return [error for member in self.members for error in member.errors]

    async def loads(self) -> list[LoadReport]:
        """A fresh report of each replica. Raises UnavailableError for one that does not run."""
        try:
            return [await _load(member) for member in self.replicas]
        except PilotfishError as error:
            raise UnavailableError("; ".join([str(error), *self.errors])) from error

    async def num_held_after(self, timeout_s: float) -> int:
        """Sequences and KV blocks that the replicas still hold once they have had timeout_s to let go."""
        num_held = -1
        try:
            async with asyncio.timeout(timeout_s):
                while num_held:
                    num_held = sum(_num_held(load) for load in await self.loads())
        except TimeoutError:
            pass
        return num_held

    def _write(self, path: Path, draft_addresses: Sequence[str]) -> None:
        orchestrator = dataclasses.replace(
            self._config.orchestrator,
            target_addresses=tuple(member.address for member in self.targets),
            draft_addresses=tuple(draft_addresses),
            http=dataclasses.replace(
                self._config.orchestrator.http, port=-1
            ),  # several on this machine, all asked by gRPC
        )
        config = dataclasses.replace(self._config, orchestrator=orchestrator)
        path.write_text(config_to_yaml(config), encoding="utf-8")

    async def _kill_all(self) -> None:
        await asyncio.gather(*(member.kill() for member in self.members))


async def _load(member: Member) -> LoadReport:
    async with RecordingPeer(member.address, "target" if member.pool == "target" else "draft") as peer:
        return await peer.load()


def _num_held(load: LoadReport) -> int:
    return load.num_sequences_running + load.num_sequences_waiting + load.num_kv_blocks_used

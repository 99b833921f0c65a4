"""The services as processes on fixed ports: killed, frozen and started again at will."""

import asyncio
import dataclasses
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import shared.checkout  # noqa: F401  # finds tests.support

from pilotfish.config import Config, config_to_yaml
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.launch.specs import free_ports
from pilotfish.rpc.frames import Service
from pilotfish.types import LoadReport
from tests.support.peer import RecordingPeer
from tests.support.service_process import ServiceProcess

_ERROR = re.compile(r"^.*( ERROR |Traceback).*(\n.*){0,60}", re.MULTILINE)
"""What tells of something unforeseen, with the lines after it."""


class Fleet:
    """`async with Fleet(config, ...) as fleet`: everything is ready inside the block, nothing is left after it."""

    def __init__(self, config: Config, *, num_targets: int, num_drafts: int, num_orchestrators: int) -> None:
        """The last of the orchestrators, one more than asked for, has no draft pool."""
        self._temporary = tempfile.TemporaryDirectory(prefix="pilotfish-faults-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)
        self._ports = iter(free_ports(num_targets + num_drafts + num_orchestrators + 1))
        pooled, alone = self._folder / "config.yaml", self._folder / "no-pool.yaml"
        self.targets = [self._member("target_service", pooled) for _ in range(num_targets)]
        self.drafts = [self._member("draft_service", pooled) for _ in range(num_drafts)]
        self.replicas = [*self.targets, *self.drafts]
        self.orchestrators = [self._member("orchestrator", pooled) for _ in range(num_orchestrators)]
        self.without_pool = self._member("orchestrator", alone)
        self.members = [*self.replicas, *self.orchestrators, self.without_pool]
        self._write(config, pooled, [member.address for member in self.drafts])
        self._write(config, alone, [])

    async def __aenter__(self) -> Self:
        try:
            for group in (self.replicas, [*self.orchestrators, self.without_pool]):
                for member in group:
                    member.start()
                await asyncio.gather(*(asyncio.to_thread(member.wait_listening) for member in group))
        except BaseException:
            self._kill_all()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._kill_all()
        self._temporary.cleanup()

    @property
    def errors(self) -> list[str]:
        """What no process should have said or done."""
        said = [found[0] for log in self._folder.glob("*.log") for found in _ERROR.finditer(log.read_text())]
        return said + [f"{each.service} at {each.address} ended by itself" for each in self.members if each.has_ended]

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

    def _member(self, service: str, config_path: Path) -> ServiceProcess:
        port = next(self._ports)
        log = self._folder / f"{service}-{port}.log"
        return ServiceProcess(service, ["--config", str(config_path)], port=port, log=log)

    def _write(self, config: Config, path: Path, draft_addresses: Sequence[str]) -> None:
        orchestrator = dataclasses.replace(
            config.orchestrator,
            target_addresses=tuple(member.address for member in self.targets),
            draft_addresses=tuple(draft_addresses),
            # Several on this machine, all asked by gRPC.
            http=dataclasses.replace(config.orchestrator.http, port=-1),
        )
        path.write_text(config_to_yaml(dataclasses.replace(config, orchestrator=orchestrator)), encoding="utf-8")

    def _kill_all(self) -> None:
        for member in self.members:
            member.kill()


async def _load(member: ServiceProcess) -> LoadReport:
    service: Service = "target" if member.service == "target_service" else "draft"
    async with RecordingPeer(member.address, service) as peer:
        return await peer.load()


def _num_held(load: LoadReport) -> int:
    return load.num_sequences_running + load.num_sequences_waiting + load.num_kv_blocks_used

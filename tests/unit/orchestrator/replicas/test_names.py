import asyncio
import logging
from collections.abc import Sequence

import pytest

from orchestrator.replicas.directory import NameFollower, ReplicaDirectory, resolve_by_system
from pilotfish.config import Config, OrchestratorConfig


class Names:
    """A name server that says what the test says."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.num_questions = 0
        self.asked = asyncio.Event()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.num_questions += 1
        self.asked.set()
        if host not in self.addresses:
            raise OSError("Name or service not known")
        return [f"{address}:{port}" for address in self.addresses[host]]


def a_config(*targets: str, drafts: tuple[str, ...] = (), interval_s: float = 3600.0) -> Config:
    orchestrator = OrchestratorConfig(target_addresses=targets, draft_addresses=drafts, resolve_interval_s=interval_s)
    return Config(orchestrator=orchestrator, cache_dir="unused")


async def test_a_name_is_every_address_that_it_has() -> None:
    names = Names()
    names.addresses = {"targets": ["10.0.0.1", "10.0.0.2"], "drafts": ["10.0.0.3"]}
    config = a_config("dns:///targets:50061", "fixed:1", drafts=("dns:///drafts:50062",))
    directory = ReplicaDirectory.from_config(config)
    follower = await NameFollower.start(config.orchestrator, directory, names.resolve)
    assert set(directory.replicas("target").values()) == {"10.0.0.1:50061", "10.0.0.2:50061", "fixed:1"}
    assert set(directory.replicas("draft").values()) == {"10.0.0.3:50062"}
    await follower.close()


async def test_a_name_server_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    names = Names()
    config = a_config("dns:///targets:50061")
    directory = ReplicaDirectory.from_config(config)
    follower = NameFollower(config.orchestrator, directory, names.resolve)
    with caplog.at_level(logging.WARNING):
        await follower.look_up()
        await follower.look_up()
    assert not directory.replicas("target")
    assert caplog.text.count("has no address yet: Name or service not known") == 1
    names.addresses = {"targets": ["10.0.0.1"]}
    await follower.look_up()
    names.addresses = {}
    await follower.look_up()
    assert set(directory.replicas("target")) == {"10.0.0.1:50061"}


async def test_a_name_that_is_none_is_told_like_one_that_nobody_knows(caplog: pytest.LogCaptureFixture) -> None:
    config = a_config("dns:///targets..example:50061")
    directory = ReplicaDirectory.from_config(config)
    with caplog.at_level(logging.WARNING):
        await NameFollower(config.orchestrator, directory, resolve_by_system).look_up()
    assert "dns:///targets..example:50061 has no address yet" in caplog.text


async def test_names_are_looked_up_again() -> None:
    names = Names()
    names.addresses = {"targets": ["10.0.0.1"]}
    config = a_config("dns:///targets:50061", interval_s=0.001)
    directory = ReplicaDirectory.from_config(config)
    follower = await NameFollower.start(config.orchestrator, directory, names.resolve)
    names.addresses = {"targets": ["10.0.0.9"]}
    for _ in range(2):
        names.asked.clear()
        await names.asked.wait()
    await follower.close()
    await follower.close()
    assert set(directory.replicas("target")) == {"10.0.0.9:50061"}


async def test_the_system_resolves_numbers() -> None:
    assert await resolve_by_system("127.0.0.1", 7) == ["127.0.0.1:7"]
    assert await resolve_by_system("::1", 7) == ["[::1]:7"]

"""Pools and links over streams in memory."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.replicas.pool import ModelReference, ReplicaPool
from pilotfish.errors import UnavailableError
from pilotfish.types import Limits, ModelInfo


class MemoryStream:
    def __init__(self, address, handlers, model) -> None:
        self.address = address
        self.on_close = lambda: None
        self.handlers = handlers
        self.model = model
        self.limits = Limits(max_draft_tokens=4, max_sequences=8)
        self.sent: list = []
        self.is_closed = False

    def send(self, command) -> None:
        self.sent.append(command)

    async def close(self) -> None:
        self.is_closed = True
        self.on_close()


class Network:
    """Who answers at which address; every stream ever made."""

    def __init__(self) -> None:
        self.models: dict[str, ModelInfo] = {}
        self.streams: list[MemoryStream] = []
        self.num_dials = 0

    def add(self, address: str, **model) -> None:
        values = {"model_id": "m", "tokenizer_fingerprint": "f", "vocab_size": 10, "max_context_tokens": 100} | model
        self.models[address] = ModelInfo(**values)

    async def connect(self, address, handlers) -> MemoryStream:
        self.num_dials += 1
        if address not in self.models:
            raise UnavailableError(f"nobody listens on {address}")
        stream = MemoryStream(address, handlers, self.models[address])
        self.streams.append(stream)
        return stream

    def open_at(self, address: str) -> MemoryStream:
        (stream,) = [stream for stream in self.streams if stream.address == address and not stream.is_closed]
        return stream


@pytest.fixture
def network() -> Network:
    """Two replicas answer."""
    network = Network()
    network.add("a:1")
    network.add("b:2")
    return network


@pytest.fixture
def directory() -> ReplicaDirectory:
    """One of them is known."""
    directory = ReplicaDirectory()
    directory.set_replicas("target", {"a": "a:1"})
    return directory


@contextlib.asynccontextmanager
async def running_pool(
    network: Network, directory: ReplicaDirectory, clock=time.monotonic, **options
) -> AsyncIterator[ReplicaPool]:
    pool = ReplicaPool("target", directory, network.connect, ModelReference().check, clock=clock, **options)
    pool.start()
    try:
        yield pool
    finally:
        await pool.close()
    assert all(stream.is_closed for stream in network.streams)


async def until_changed(pool: ReplicaPool, condition) -> None:
    """Wait for the pool to change until the condition holds."""
    changed = asyncio.Event()
    pool.on_change(changed.set)
    while not condition():
        changed.clear()
        await changed.wait()


@pytest.fixture
def running() -> Any:
    return running_pool


@pytest.fixture
def until() -> Any:
    return until_changed

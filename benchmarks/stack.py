"""The three services as processes on free ports, and a client that runs many requests at once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc.aio
import psutil

from pilotfish.cli.launch import free_ports, with_local_addresses
from pilotfish.config import Config, config_to_yaml, load_config
from pilotfish.rpc.channel import CHANNEL_OPTIONS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc

START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 20
SERVICES = ("target_service", "draft_service", "orchestrator")


class Stack:
    """`with Stack(["target.engine.dtype=float32"]) as stack`: running, and gone at the end."""

    def __init__(self, overrides: Sequence[str] = (), *, services: Sequence[str] = SERVICES) -> None:
        self._overrides = [f"orchestrator.port={free_ports(1)[0]}", *overrides]
        self._services = services
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="pilotfish-bench-")
        self.config: Config = with_local_addresses(load_config(overrides=self._overrides))
        path = Path(self._folder.name) / "config.yaml"
        path.write_text(config_to_yaml(self.config), encoding="utf-8")
        try:
            for service in self._services:
                log = Path(self._folder.name) / f"{service}.log"
                self._processes[service] = subprocess.Popen(
                    [sys.executable, "-m", service, "--config", str(path)],
                    stdout=subprocess.PIPE,
                    stderr=log.open("w"),
                    text=True,
                )
            for service, process in self._processes.items():
                self._await_ready(service, process)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
        self._folder.cleanup()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.config.orchestrator.port}"

    def resident_bytes(self, service: str, *, children_only: bool = False) -> int:
        """Resident set of a service's front and its children (the engine process)."""
        front = psutil.Process(self._processes[service].pid)
        processes = [*([] if children_only else [front]), *front.children(recursive=True)]
        return sum(process.memory_info().rss for process in processes)

    def _await_ready(self, service: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " ready on " not in line:
            log = (Path(self._folder.name) / f"{service}.log").read_text(encoding="utf-8")
            raise RuntimeError(f"{service} did not start: {line}{log[-2000:]}")


@dataclass(slots=True)
class Answer:
    """One finished request."""

    token_ids: list[int]
    logprobs: list[Any]
    summary: Any
    wall_s: float


async def ask_all(address: str, requests: Sequence[pb.GenerateRequest], concurrency: int) -> list[Answer]:
    """Run the requests, at most concurrency at a time; answers in the requests' order."""
    gate = asyncio.Semaphore(concurrency)
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.InferenceStub(channel)

        async def ask(request: pb.GenerateRequest) -> Answer:
            async with gate:
                start = time.perf_counter()
                answer = Answer([], [], None, 0.0)
                async for response in stub.Generate(request, timeout=600):
                    if response.HasField("summary"):
                        answer.summary = response.summary
                    else:
                        answer.token_ids.extend(response.chunk.token_ids)
                        answer.logprobs.extend(response.chunk.logprobs)
                answer.wall_s = time.perf_counter() - start
                return answer

        return list(await asyncio.gather(*(ask(request) for request in requests)))


def chat_request(text: str, **fields: Any) -> pb.GenerateRequest:
    """A one-turn chat."""
    return pb.GenerateRequest(chat=pb.ChatPrompt(messages=[pb.ChatMessage(role="user", content=text)]), **fields)

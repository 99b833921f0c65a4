"""Targets of one pool that take different numbers of draft tokens: the least counts."""

import contextlib
import dataclasses
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.server import OrchestratorServer
from pilotfish.config import Config, config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.errors import UnavailableError
from pilotfish.rpc.replica.server import ReplicaServer
from target_service.server import start_target
from tests.support.stack import READY_TIMEOUT_S
from tests.support.threaded_engine import ThreadedEngine
from tests.support.until import until

SMALL, LARGE = 4, 32
MANY_STEPS, FEW_STEPS = 100_000, 8
"""Enough for whatever is asked, and for the beginning of an answer."""
PROMPT = [*range(5, 75)]


@pytest.fixture
def config(target_folder: Path, tmp_path: Path) -> Config:
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 1024}
    target = {
        "model": str(target_folder),
        "port": 0,
        "engine": engine,
        "drafter": {"proposer": "none", "lookup": "suffix"},
    }
    return config_from_dict({"target": target, "orchestrator": {"port": 0}, "cache_dir": str(tmp_path)})


@contextlib.asynccontextmanager
async def target(
    config: Config, max_draft_tokens: int, steps: threading.Semaphore | None = None
) -> AsyncIterator[ReplicaServer]:
    engine = dataclasses.replace(config.target.engine, max_draft_tokens=max_draft_tokens)
    config = dataclasses.replace(config, target=dataclasses.replace(config.target, engine=engine))
    core = build_engine(config, "target")
    if steps is not None:  # each of the engine's takes one
        step = core.step
        core.step = lambda *arguments: steps.acquire() and step(*arguments)
    server = await start_target(config, engine=ThreadedEngine(core))
    try:
        yield server
    finally:
        await server.drain_and_stop(0)


@contextlib.asynccontextmanager
async def orchestrator(
    config: Config, *targets: ReplicaServer
) -> AsyncIterator[tuple[OrchestratorServer, ReplicaDirectory]]:
    directory = ReplicaDirectory()
    directory.set_replicas("target", {each.address: each.address for each in targets})
    server = await OrchestratorServer.start(config, directory)
    try:
        assert await server.wait_ready(READY_TIMEOUT_S)
        await until(lambda: server.service.targets.num_connected == len(targets))
        yield server, directory
    finally:
        await server.drain_and_stop(0)


async def ask(server: OrchestratorServer, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http_url, timeout=60) as client:
        return await client.post("/v1/completions", json={"prompt": PROMPT, "temperature": 0, **fields})


async def test_what_is_asked_holds_for_every_target(config) -> None:
    async with target(config, LARGE) as large, target(config, SMALL) as small:
        async with orchestrator(config, large) as (alone, _):
            expected = (await ask(alone, prompt_logprobs=1, max_tokens=20)).json()["choices"][0]
        async with orchestrator(config, small, large) as (server, _):
            refused = await ask(server, speculation={"mode": "on", "num_speculative_tokens": SMALL + 1})
            assert refused.status_code == 400
            assert f"at most {SMALL} a round" in refused.text
            for begin in range(5, 11):  # prompts that nobody has cached go to either
                told = await ask(server, prompt=[begin, *PROMPT], prompt_logprobs=1, max_tokens=1)
                assert told.status_code == 200, told.text
                assert len(told.json()["choices"][0]["prompt_logprobs"]) == len(PROMPT) + 1
            (choice,) = (await ask(server, prompt_logprobs=1, max_tokens=20)).json()["choices"]
            assert choice["text"] == expected["text"]
            assert [sorted(each or ()) for each in choice["prompt_logprobs"]] == [
                sorted(each or ()) for each in expected["prompt_logprobs"]
            ]


@pytest.mark.parametrize("proposer", ["suffix", "ngram"], ids=["drafts in the target", "drafts of the orchestrator"])
async def test_an_answer_goes_on_where_fewer_draft_tokens_are_taken(config, proposer) -> None:
    speculation = {"mode": "on", "proposer": proposer, "num_speculative_tokens": 16}
    fields = {"prompt": PROMPT * 2, "temperature": 0, "max_tokens": 350, "ignore_eos": True, "speculation": speculation}
    steps = threading.Semaphore(MANY_STEPS)
    async with (
        target(config, LARGE, steps) as large,
        target(config, SMALL) as small,
        orchestrator(config, large) as (server, directory),
        httpx.AsyncClient(base_url=server.http_url, timeout=60) as client,
    ):
        whole, targets = await ask(server, **fields), server.service.targets
        while steps.acquire(blocking=False):
            pass
        steps.release(FEW_STEPS)
        async with client.stream("POST", "/v1/completions", json={**fields, "stream": True}) as response:
            lines = response.aiter_lines()
            events = [await anext(lines)]
            directory.set_replicas("target", {each.address: each.address for each in (large, small)})
            await until(lambda: targets.num_connected == 2)
            next(link for link in targets.links if link.replica_id == large.address).on_lost(UnavailableError(""))
            events += [line async for line in lines]
        steps.release(MANY_STEPS)
        assert server.service.statistics.totals.num_failovers == 1
    texts = [json.loads(event[6:])["choices"][0]["text"] for event in events if event.startswith("data: {")]
    assert "".join(texts) == whole.json()["choices"][0]["text"]
    assert events[-2:] == ["data: [DONE]", ""]

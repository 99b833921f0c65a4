"""Steps of reasoning through gRPC and HTTP, with real engines of a tiny model that drafts for itself."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio

from pilotfish.config import Config, EmulationConfig, config_from_dict
from pilotfish.engine.process.factory import build_engine
from tests.support.stack import Stack, running_stack
from tests.support.threaded_engine import ThreadedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

STEPS = {"level": "step", "step_max_tokens": 8, "step_tokens": 24}
MAX_TOKENS = 32


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    service = {"model": str(target_folder), "engine": {"compile": False, "num_threads": 1, "kv_cache_tokens": 2048}}
    config = config_from_dict(
        {
            "target": service,
            "draft": {"proposer": "model", **service},
            # A run of one token: of a longer one more may have come before the first step.
            "orchestrator": {"speculation": {"allow_lossy": True, "draft_deadline_ms": 10000, "decode_run_tokens": 1}},
            "cache_dir": str(tmp_path_factory.mktemp("cache")),
        }
    )
    engines = {f"{role}_engine": ThreadedEngine(build_engine(config, role)) for role in ("target", "draft")}
    async with running_stack(config, **engines) as stack:
        yield stack


async def complete(stack: Stack, **fields: Any) -> httpx.Response:
    body = {"prompt": "a small fish", "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True, **fields}
    async with httpx.AsyncClient(timeout=60, verify=False) as client:
        return await client.post(f"{stack.orchestrator.http_url}/v1/completions", json=body)


async def test_steps_that_stand_and_fall(stack: Stack) -> None:
    """The drafter says what the target says: whether its steps stand or fall, the text is the same."""
    plain = await stack.ask(max_tokens=MAX_TOKENS, temperature=0.0, speculation={"mode": 2})
    for judge, least in (("score", 0.0), ("score", 10.0), ("logprob", -100.0), ("logprob", 1.0)):
        asked = {**STEPS, "step_judge": judge, "step_threshold": least}
        answer = await stack.ask(max_tokens=MAX_TOKENS, temperature=0.0, speculation=asked)
        assert answer.token_ids == plain.token_ids
        stats, summary = answer.speculation, answer.summary
        assert summary is not None
        assert summary.lossy
        stand = least in (0.0, -100.0)
        assert stats.num_steps >= 2
        assert stats.num_accepted_steps == (stats.num_steps if stand else 0)
        # One token before the first step, 23 that may be drafted, and the answer.
        assert stats.num_step_tokens == (23 if stand else 0)
    response = await complete(stack, speculation={**asked, "step_threshold": -100, "return_tokens": True})
    assert response.headers["x-pilotfish-lossy"] == "step"
    (choice,) = response.json()["choices"]
    assert choice["speculation"]["tokens"]["token_ids"] == plain.token_ids
    report = choice["speculation"]["report"]
    assert (report["lossy"], report["num_step_tokens"]) == (True, 23)
    async with httpx.AsyncClient(timeout=60, verify=False) as client:
        metrics = (await client.get(f"{stack.orchestrator.http_url}/metrics")).text
    for name in ("num_steps", "num_accepted_steps"):
        (value,) = re.findall(rf"^pilotfish_spec_decode_{name}_total(?:{{.*}})? (\S+)$", metrics, re.MULTILINE)
        assert float(value) > 1


async def test_sampled_steps_obey_penalties_and_end_where_the_target_ends_them(stack: Stack) -> None:
    """The drafter, which is the target, says what the request's seed and penalties make of it."""
    sampled = {"temperature": 1.0, "seed": 4, "repetition_penalty": 1.3, "ignore_eos": False}
    whole = await stack.ask(max_tokens=MAX_TOKENS, **sampled, speculation={"mode": 2})
    sampled["stop_token_ids"] = whole.token_ids[20:21]
    plain = await stack.ask(max_tokens=MAX_TOKENS, **sampled, speculation={"mode": 2})
    assert len(plain.token_ids) < MAX_TOKENS
    asked = {**STEPS, "step_judge": "logprob", "step_threshold": -100.0}
    steps = await stack.ask(max_tokens=MAX_TOKENS, **sampled, speculation=asked)
    assert (steps.token_ids, steps.text) == (plain.token_ids, plain.text)
    assert steps.speculation.num_accepted_steps
    rejecting = await stack.ask(max_tokens=MAX_TOKENS, **sampled, speculation={**asked, "acceptance": 2})
    assert rejecting.speculation.num_accepted_steps


async def test_log_probabilities_are_those_of_plain_decoding(stack: Stack) -> None:
    plain = (await complete(stack, logprobs=1, speculation={"mode": "off"})).json()["choices"][0]
    for judge, least in (("score", 0), ("logprob", -100)):
        speculation = {**STEPS, "step_judge": judge, "step_threshold": least}
        steps = (await complete(stack, logprobs=1, speculation=speculation)).json()["choices"][0]
        assert (steps["logprobs"], steps["text"]) == (plain["logprobs"], plain["text"])


async def test_what_only_the_target_keeps_is_refused(stack: Stack) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"structured_outputs": {"regex": "a+"}, "ignore_eos": False}, "structured_outputs"),
        ({"bad_words": ["fish"]}, "bad_words"),
        ({"speculation": {"level": "step", "acceptance": "typical"}}, "speculation.acceptance"),
        ({"speculation": {"level": "step", "step_max_tokens": 0}}, "speculation.step_max_tokens"),
    ]
    for fields, param in cases:
        response = await complete(stack, **{"speculation": {"level": "step"}, **fields})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("step_acceptance", [0.0, 0.5, 1.0])
async def test_an_emulated_target_keeps_as_many_steps_as_is_asked_for(tmp_path: Path, step_acceptance: float) -> None:
    """By the configured question, scale and ends."""
    steps = {"question": " right? ", "scale": ["n", "y"], "least_score": 1, "ends": ["a", "e"]}
    config = config_from_dict(
        {
            "emulation": {"profile": "instant", "step_acceptance": step_acceptance},
            "orchestrator": {"speculation": {"allow_lossy": True, "draft_deadline_ms": 10000, "steps": steps}},
            "cache_dir": str(tmp_path),
        }
    )
    async with running_stack(config) as stack:
        stats = (await stack.ask(max_tokens=400, speculation={"level": "step"})).speculation
    assert stats.num_steps > 20  # far more than the end at `step_max_tokens` would make
    kept = stats.num_accepted_steps / stats.num_steps
    assert kept == step_acceptance if step_acceptance in (0, 1) else 0.1 < kept < 0.9


async def test_they_are_the_operators_to_allow(tmp_path: Path) -> None:
    config = Config(emulation=EmulationConfig(profile="instant"), cache_dir=str(tmp_path))
    async with running_stack(config) as stack:
        response = await complete(stack, speculation={"level": "step"})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "speculation.level"
        assert "allow_lossy" in response.json()["error"]["message"]
        assert "x-pilotfish-lossy" not in response.headers
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stack.ask(speculation={"level": "step"})
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

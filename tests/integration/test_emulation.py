"""All services as processes over emulated engines, on a machine that has no model and fetches none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from pilotfish.client.answer import Chunk, GenerateOptions, Summary
from pilotfish.client.inference import InferenceClient
from pilotfish.config import Config, EmulationConfig, TargetConfig
from pilotfish.launch.local_stack import LocalStack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    config = Config(
        emulation=EmulationConfig(profile="instant", acceptance=0.7),
        target=TargetConfig(model="nobody/has-this"),
        cache_dir=str(tmp_path_factory.mktemp("cache")),
    )
    with LocalStack(config) as stack:
        yield stack


def ask(stack: LocalStack, **options: object) -> tuple[str, Summary]:
    with InferenceClient(stack.address) as client:
        wanted = dataclasses.replace(GenerateOptions(max_tokens=60, seed=5), **options)
        *chunks, summary = client.generate("Tell me of the sea.", wanted, timeout_s=60)
    assert isinstance(summary, Summary)
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Chunk)), summary


def test_it_says_words_and_that_it_is_emulated(stack: LocalStack) -> None:
    text, summary = ask(stack, speculation="off")
    assert len(text.split()) == 60
    assert summary.emulated
    assert summary.model_id == "emulated instant"
    with InferenceClient(stack.address) as client:
        assert client.info().emulated


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_change_the_rounds_and_not_the_text(stack: LocalStack, temperature: float) -> None:
    plain, _ = ask(stack, speculation="off", temperature=temperature)
    drafted, summary = ask(stack, speculation="on", temperature=temperature)
    assert drafted == plain
    assert 0 < summary.num_accepted_tokens < summary.num_draft_tokens

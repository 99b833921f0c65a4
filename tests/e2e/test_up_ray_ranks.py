"""`pilotfish up --ray` with a target in two ranks: a placement group, a process in each bundle, and the loss of one."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pilotfish.client.answer import Chunk, GenerateOptions
from pilotfish.client.inference import InferenceClient
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama

pytestmark = [pytest.mark.model, pytest.mark.ray, pytest.mark.timeout(300)]

RANK = "pilotfish.parallel.rank"
PROMPT = "The small fish swims ahead of the shark."
OPTIONS = GenerateOptions(max_tokens=400, temperature=0, ignore_eos=True)
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(vocab_size=PRINTABLE_VOCAB_SIZE, max_position_embeddings=512).save_pretrained(folder)
    save_printable_tokenizer(folder)
    return folder


def test_a_request_outlives_the_rank_that_computed_it(folder: Path, start_up: Callable) -> None:
    settings = (
        f"target.model={folder}",
        "target.tensor_parallel_size=2",
        "target.engine.dtype=float32",
        "target.engine.num_threads=1",
        "target.engine.kv_cache_tokens=2048",
        "draft.num_replicas=0",
    )
    up = start_up("--ray", *(part for setting in settings for part in ("--set", setting)))
    with InferenceClient(up.address) as client:
        expected = token_ids(client.generate(PROMPT, OPTIONS, timeout_s=TIMEOUT_S))
        assert len(expected) == OPTIONS.max_tokens
        rank = up.descendant(RANK)
        assert rank.nice() == psutil.Process().nice(), "Ray would have it behind everything else on the machine"
        answer = client.generate(PROMPT, OPTIONS, timeout_s=TIMEOUT_S)
        begun = token_ids([next(answer)])
        os.kill(rank.pid, signal.SIGKILL)
        assert begun + token_ids(answer) == expected
        up.wait_for_descendant(RANK)
        (replacement,) = ranks(up.descendants())
        assert replacement.pid != rank.pid
    assert up.stop(signal.SIGINT) == 0
    assert not up.left()


def ranks(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if re.search(RANK, " ".join(process.cmdline()))]


def token_ids(messages) -> list[int]:
    return [token_id for message in messages if isinstance(message, Chunk) for token_id in message.token_ids]

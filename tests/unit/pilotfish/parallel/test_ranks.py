"""Real rank processes behind a real engine worker, over gloo. One start for all that it shows."""

import dataclasses
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pilotfish.config import Config, EngineConfig, InTargetDrafterConfig, TargetConfig
from pilotfish.drafters.eagle3.checkpoint import save_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.errors import UnavailableError
from pilotfish.messages import Decode, OpenSequence, Verify
from pilotfish.types import SamplingParams
from tests.support.engine_events import received_text
from tests.support.tiny_models import greedy_text, tiny_eagle3_config
from tests.unit.pilotfish.parallel.conftest import SIZES, VOCAB

PROMPT = tuple((7 * index + 3) % 90 for index in range(40))
GREEDY = SamplingParams(temperature=0, max_tokens=100)
NUM_RANKS = 2


@pytest.fixture
def config(saved_model: Callable[[str], Any], model_folder: Path, tmp_path: Path) -> Config:
    """A target in ranks with a head: a tiny Llama with the tokenizer that the other tests have."""
    _, weights = saved_model("llama")
    folder = tmp_path / "tiny"
    shutil.copytree(weights, folder)
    shutil.copy(model_folder / "tokenizer.json", folder)
    head = Eagle3Head(tiny_eagle3_config(hidden_size=SIZES["hidden_size"], vocab_size=VOCAB))
    save_eagle3(head, tmp_path / "head")
    drafter = InTargetDrafterConfig(proposer="eagle3", model=str(tmp_path / "head"))
    engine = EngineConfig(dtype="float32", num_threads=1, kv_cache_tokens=512, max_batch_tokens=64, max_sequences=4)
    target = TargetConfig(model=str(folder), tensor_parallel_size=NUM_RANKS, drafter=drafter, engine=engine)
    return Config(target=target)


async def test_a_rank_that_hangs_amid_a_decode_ends_the_replica(config: Config, temporary: Path) -> None:
    engine_config = dataclasses.replace(config.target.engine, step_timeout_s=5)
    target = dataclasses.replace(config.target, engine=engine_config, drafter=InTargetDrafterConfig())
    engine = await ProcessEngine.start(dataclasses.replace(config, target=target), "target")
    try:
        ranks = ranks_of(engine)
        engine.send([OpenSequence(1, PROMPT, GREEDY), Decode(1, len(PROMPT), 100)])
        await engine.receive()
        os.kill(ranks[0].pid, signal.SIGSTOP)
        with pytest.raises(UnavailableError, match=r"hangs: it has said nothing for 5 s"):
            await until_lost(engine)
        await engine._child.wait()
        assert not psutil.wait_procs(ranks, timeout=10)[1], "what hangs ends with it"
    finally:
        await engine.close()


async def until_lost(engine: ProcessEngine) -> None:
    while True:
        await engine.receive()


def ranks_of(engine: ProcessEngine) -> list[psutil.Process]:
    return [child for child in psutil.Process(engine.pid).children() if "pilotfish.parallel.rank" in child.cmdline()]


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder of the processes that a test starts: short, for it is part of a socket's name."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def meeting_places(folder: Path) -> list[Path]:
    return list(folder.glob("pilotfish-ranks-*"))


async def test_a_replica_of_ranks_answers_as_one_and_ends_with_any_of_them(
    config: Config, saved_model: Callable[[str], Any], temporary: Path
) -> None:
    expected = greedy_text(saved_model("llama")[0], PROMPT, 12)
    engine = await ProcessEngine.start(config, "target")
    try:
        assert not meeting_places(temporary), "the ranks have met"
        assert engine.model.proposer == "eagle3"
        engine.send([OpenSequence(1, PROMPT, GREEDY), Decode(1, len(PROMPT), 6)])
        assert await received_text(engine, 6) == expected[:6]
        drafts = (*expected[6:8], (expected[8] + 1) % 90)
        engine.send([Verify(1, len(PROMPT) + 6, drafts)])
        assert await received_text(engine, 3) == expected[6:9]
        engine.send([Decode(1, len(PROMPT) + 9, 3, num_draft_tokens=2)])
        assert await received_text(engine, 3) == expected[9:]
        ranks = sorted(ranks_of(engine), key=lambda process: process.cmdline()[-1])
        os.kill(ranks[0].pid, signal.SIGKILL)
        with pytest.raises(UnavailableError, match=rf"rank 1 \(process {ranks[0].pid}\) of 2 ended"):
            await until_lost(engine)
        assert not psutil.wait_procs(ranks, timeout=10)[1], "the others end with it"
    finally:
        await engine.close()

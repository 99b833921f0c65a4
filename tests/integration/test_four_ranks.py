"""Four ranks of a model with Llama-3.1-70B's proportions, made narrow, as plain processes over gloo: from the start
through 64 sequences and a cache that is too small for them to a rank that is lost or hangs."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from pilotfish.config import Config, EngineConfig, TargetConfig
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.errors import UnavailableError
from pilotfish.messages import CloseSequence, Decode, OpenSequence, SequenceError, Verdict
from pilotfish.types import SamplingParams
from tests.support.tiny_llama import save_printable_tokenizer, tiny_llama
from tests.support.tiny_models import greedy_text

SIZES = {"hidden_size": 64, "intermediate_size": 224, "num_attention_heads": 16, "num_key_value_heads": 8}
"""An MLP of 3.5 times the width, and key heads for as many ranks as the original's."""
NUM_LAYERS, CONTEXT = 8, 4096
KV_CACHE_TOKENS = 1536
SHORT, LONG = 20, 900
"""Tokens of 63 prompts and of one: with their answers they take twice the cache."""
NUM_SEQUENCES, NUM_TOKENS = 64, 12
STEP_TIMEOUT_S = 20
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)


def prompt(sequence_id: int) -> tuple[int, ...]:
    return tuple((7 * index + 5 * sequence_id) % 90 for index in range(LONG if sequence_id == 1 else SHORT))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    model = tiny_llama(num_hidden_layers=NUM_LAYERS, vocab_size=96, max_position_embeddings=CONTEXT, **SIZES)
    model.save_pretrained(tmp_path, max_shard_size="200KB")
    save_printable_tokenizer(tmp_path)
    engine = EngineConfig(
        dtype="float32",
        num_threads=1,
        kv_cache_tokens=KV_CACHE_TOKENS,
        max_batch_tokens=256,
        max_sequences=NUM_SEQUENCES,
        step_timeout_s=STEP_TIMEOUT_S,
    )
    return Config(target=TargetConfig(model=str(tmp_path), tensor_parallel_size=4, engine=engine))


async def texts(engine: ProcessEngine, sequence_ids: range) -> dict[int, list[int]]:
    """Answers of NUM_TOKENS of these sequences, all at once."""
    for sequence_id in sequence_ids:
        tokens = prompt(sequence_id)
        engine.send([OpenSequence(sequence_id, tokens, GREEDY), Decode(sequence_id, len(tokens), NUM_TOKENS)])
    found: dict[int, list[int]] = {sequence_id: [] for sequence_id in sequence_ids}
    while any(len(tokens) < NUM_TOKENS for tokens in found.values()):
        for event in await engine.receive():
            assert not isinstance(event, SequenceError), event
            if isinstance(event, Verdict):
                found[event.sequence_id] += event.token_ids
                if len(found[event.sequence_id]) >= NUM_TOKENS:
                    engine.send([CloseSequence(event.sequence_id)])
    return found


async def error_of(engine: ProcessEngine, sequence_id: int, num_tokens: int) -> str:
    """Why a prompt of so many tokens is refused."""
    tokens = tuple(index % 90 for index in range(num_tokens))
    engine.send([OpenSequence(sequence_id, tokens, GREEDY), Decode(sequence_id, num_tokens, 1)])
    while True:
        for event in await engine.receive():
            if isinstance(event, SequenceError):
                return str(event)


async def until_lost(engine: ProcessEngine) -> None:
    while True:
        await engine.receive()


@pytest.mark.parametrize(
    ("signal_number", "said"),
    [
        (signal.SIGKILL, r"rank 3 \(process \d+\) of 4 ended: this replica ends with it"),
        (signal.SIGSTOP, rf"hangs: it has said nothing for {STEP_TIMEOUT_S} s"),
    ],
)
async def test_four_ranks_serve_what_one_process_says_and_end_together(
    config: Config, signal_number: signal.Signals, said: str
) -> None:
    engine = await ProcessEngine.start(config, "target")
    worker = psutil.Process(engine.pid)
    processes = [worker, *worker.children(recursive=True)]
    ranks = [each for each in processes if "pilotfish.parallel.rank" in each.cmdline()]
    assert len(ranks) == 3
    try:
        model = tiny_llama(num_hidden_layers=NUM_LAYERS, vocab_size=96, max_position_embeddings=CONTEXT, **SIZES)
        found = await texts(engine, range(1, NUM_SEQUENCES + 1))
        for sequence_id in (1, 2, NUM_SEQUENCES):
            assert found[sequence_id] == greedy_text(model, prompt(sequence_id), NUM_TOKENS)
        refusal = await error_of(engine, 100, KV_CACHE_TOKENS + 200)
        assert "have 1736 tokens; the KV cache holds 1536: raise engine.kv_cache_tokens" in refusal
        engine.send([OpenSequence(101, prompt(2), SamplingParams(temperature=0, max_tokens=2000))])
        engine.send([Decode(101, SHORT, 1000)])
        await engine.receive()
        (last,) = (each for each in ranks if each.cmdline()[-1] == "3")
        os.kill(last.pid, signal_number)
        with pytest.raises(UnavailableError, match=said):
            await until_lost(engine)
    finally:
        await engine.close()
    assert not psutil.wait_procs(processes, timeout=20)[1], "nothing is left running"

"""Heads in a target of several ranks: the first one drafts, and the text is that of one process."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from pilotfish.config import EngineConfig, Quantization
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.messages import Verdict
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.types import AcceptanceMode, ModelInfo, SamplingParams, TreeRequest
from tests.support.engine_events import MakeDrafter, decode, prompts, ticking_clock
from tests.support.tiny_llama import tiny_llama
from tests.unit.pilotfish.parallel.replica import CONTEXT, Replica

SAMPLINGS = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=1.0, seed=7, frequency_penalty=0.3),
    SamplingParams(temperature=0.7, seed=3, acceptance=AcceptanceMode.REJECTION),
]
PLAIN, CHAINS, TREES = (0, None), (4, None), (4, TreeRequest(max_nodes=12, branching=3))


def make_core(decoder: Decoder, make_drafter: MakeDrafter) -> EngineCore:
    return EngineCore(
        decoder,
        EngineConfig(kv_cache_tokens=8192, max_batch_tokens=256, dtype="float32", max_draft_tokens=12),
        ModelInfo(model_id="tiny", tokenizer_fingerprint="none", vocab_size=64, max_context_tokens=CONTEXT),
        drafter=make_drafter(decoder),
        clock_ns=ticking_clock(),
    )


def model() -> LlamaForCausalLM:
    """With key/value heads for four ranks."""
    return tiny_llama(num_key_value_heads=4, max_position_embeddings=CONTEXT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.mark.usefixtures("drafts_are_free")
@pytest.mark.parametrize(("num_ranks", "records"), [(2, True), (4, False)])
def test_the_text_is_that_of_one_process(
    make_replica: Callable[..., Replica], make_drafter: MakeDrafter, folder: Path, num_ranks: int, records: bool
) -> None:
    """Of 12 prompts in each of nine ways."""
    replica = make_replica(folder, num_ranks)
    replica.no_kernels = set() if records else {0}
    several = make_core(replica.start(EngineConfig(dtype="float32", compile=False)), make_drafter)
    replica.decoder.record_graphs()
    one = make_core(TransformersDecoder(model(), deterministic=False, max_context_tokens=CONTEXT), make_drafter)
    for number, (sampling, drafts) in enumerate(itertools.product(SAMPLINGS, (PLAIN, CHAINS, TREES))):
        texts = prompts(number, 12)
        expected, verdicts = decode(one, texts, sampling, 10, *drafts)
        outputs, theirs = decode(several, texts, sampling, 10, *drafts)
        assert outputs == expected
        assert num_accepted(theirs) == num_accepted(verdicts), "the drafts are the same, too"
        assert sum(verdict.num_draft_tokens for verdict in verdicts) > 100 * (drafts != PLAIN) - 1


@pytest.mark.usefixtures("drafts_are_free")
@pytest.mark.parametrize("quantization", ["int8", "fp8"])
def test_of_rounded_weights_the_text_is_that_of_plain_decoding(
    make_replica: Callable[..., Replica], make_drafter: MakeDrafter, folder: Path, quantization: Quantization
) -> None:
    replica = make_replica(folder)
    engine = EngineConfig(device="cuda", compile=False, quantization=quantization)
    core = make_core(replica.start(engine), make_drafter)
    replica.decoder.record_graphs()
    for sampling in SAMPLINGS[:2]:
        texts = prompts(1, 4)
        expected, _ = decode(core, texts, sampling, 10, *PLAIN)
        for drafts in (CHAINS, TREES):
            outputs, verdicts = decode(core, texts, sampling, 10, *drafts)
            assert outputs == expected
            assert sum(verdict.num_draft_tokens for verdict in verdicts) > 30


def num_accepted(verdicts: Sequence[Verdict]) -> int:
    return sum(verdict.num_accepted_tokens for verdict in verdicts)

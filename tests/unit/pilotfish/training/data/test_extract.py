"""What is extracted equals transformers' own hidden states, and shards survive kills."""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.errors import InvalidRequestError
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.training.data import extract
from pilotfish.training.data.conversations import Conversation
from pilotfish.training.data.extract import FeatureExtractor, extend
from pilotfish.training.data.samples import Sample, SampleStore
from tests.unit.pilotfish.training.conftest import KilledError

LAYERS = (2, 3, 5)


@pytest.fixture
def extractor(tiny_target: LlamaForCausalLM) -> FeatureExtractor:
    model = copy.deepcopy(tiny_target)  # a decoder takes it over
    return FeatureExtractor(TransformersDecoder(model, deterministic=False, max_context_tokens=64), LAYERS, 40)


def conversation(length: int, prompt_len: int, seed: int = 0) -> Conversation:
    draw = torch.Generator().manual_seed(seed)
    return Conversation(prompt_len, torch.randint(30, (length,), generator=draw).tolist())


@torch.no_grad()
def check(sample: Sample, source: Conversation, target: LlamaForCausalLM) -> None:
    tokens = torch.tensor(source.token_ids)[:40]
    output = target(tokens[None], output_hidden_states=True)
    assert sample.token_ids.tolist() == tokens.tolist()
    expected = torch.cat([output.hidden_states[layer][0] for layer in LAYERS], dim=-1)
    torch.testing.assert_close(sample.features, expected, atol=1e-4, rtol=1e-4)
    first = source.prompt_len - 1
    torch.testing.assert_close(sample.answer_hidden, output.hidden_states[-1][0][first:], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(sample.log_mass[first:], output.logits[0][first:].logsumexp(-1), atol=1e-4, rtol=1e-4)
    assert sample.choices[first:].tolist() == output.logits[0][first:].argmax(-1).tolist()
    assert sample.choices[:first].tolist() == [-1] * first
    assert not sample.last_hidden[:first].any()
    assert torch.equal(sample.last_hidden[first:], sample.answer_hidden)


def test_samples_are_what_transformers_computes(
    extractor: FeatureExtractor, tiny_target: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps of 16 rows: several conversations in one, one over several, one cut to 40 tokens."""
    monkeypatch.setattr(extract, "_STEP_ROWS", 16)
    sources = [conversation(5, 2), conversation(7, 1, 1), conversation(37, 20, 2), conversation(60, 3, 3)]
    extracted = list(extractor.extract([*sources, conversation(60, 40)]))
    assert len(extracted) == 4
    for one, source in zip(extracted, sources, strict=True):
        check(one, source, tiny_target)


def sources(count: int) -> list[Conversation]:
    return [conversation(10 + index % 3, 4, index) for index in range(count)]


@pytest.fixture
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(extract, "SHARD_TOKENS", 30)
    return


@pytest.mark.usefixtures("_small_shards")
def test_extraction_goes_on_after_a_kill_and_with_more_data(
    extractor: FeatureExtractor, tiny_target: LlamaForCausalLM, tmp_path: Path
) -> None:
    def kill(done: int) -> None:
        if done > 3:
            raise KilledError

    with pytest.raises(KilledError):
        extend(SampleStore(tmp_path), extractor, sources(8), kill)
    (tmp_path / ".shard-00009.safetensors.partial").write_bytes(b"torn")
    store = SampleStore(tmp_path)
    assert 3 < store.num_conversations < 8
    extend(store, extractor, sources(8))
    again = SampleStore(tmp_path)
    extend(again, extractor, sources(11))
    assert again.num_conversations == 11
    extracted: Sequence[Sample] = list(SampleStore(tmp_path).read())
    assert len(extracted) == 11
    for one, source in zip(extracted, sources(11), strict=True):
        check(one, source, tiny_target)
    assert not list(tmp_path.glob(".*"))


def test_a_torn_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "shard-00000.safetensors").write_bytes(b"torn")
    with pytest.raises(InvalidRequestError, match=r"shard-00000\.safetensors is no shard.*delete it"):
        SampleStore(tmp_path)

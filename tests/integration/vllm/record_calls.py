"""Writes down what vLLM calls its proposer with: VLLM_PYTHON record_calls.py MODEL_FOLDER OUTPUT.json

Requests of many lengths come while others run, end, wait for room and lose it: rows are added, moved and removed.
"""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import vllm
from vllm.sampling_params import RequestOutputKind

NUM_REQUESTS = 24


class RecordingProposer:
    """Proposes what followed the last token before, and keeps its arguments."""

    calls: ClassVar[list[tuple[list[list[int]], list[list[int]]]]] = []

    def __init__(self, vllm_config: Any) -> None:
        self._num_draft_tokens = vllm_config.speculative_config.num_speculative_tokens

    def load_model(self, *args: Any, **kwargs: Any) -> None: ...

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens: np.ndarray,
        token_ids: np.ndarray,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        rows = [token_ids[slot, : int(num_tokens[slot])].tolist() for slot in range(len(sampled_token_ids))]
        sys.modules["record_calls"].RecordingProposer.calls.append(([list(each) for each in sampled_token_ids], rows))
        return [self._draft(row) if sampled else [] for row, sampled in zip(rows, sampled_token_ids, strict=True)]

    def _draft(self, row: Sequence[int]) -> list[int]:
        earlier = [index for index, token_id in enumerate(row[:-1]) if token_id == row[-1]]
        return list(row[earlier[-1] + 1 :][: self._num_draft_tokens]) if earlier else []


def main() -> None:
    model, output = sys.argv[1:]
    sys.modules["record_calls"] = sys.modules["__main__"]
    llm = vllm.LLM(
        model,
        dtype="bfloat16",
        max_model_len=256,
        max_num_seqs=6,
        max_num_batched_tokens=64,
        num_gpu_blocks_override=14,
        block_size=32,
        enable_prefix_caching=False,
        enforce_eager=True,
        seed=0,
        speculative_config={
            "method": "custom_class",
            "model": "record_calls.RecordingProposer",
            "num_speculative_tokens": 3,
        },
    )
    rng = random.Random(7)
    prompts = {
        f"r{index}": [1000 + index, *(rng.randrange(500, 520) for _ in range(rng.randrange(3, 100)))]
        for index in range(NUM_REQUESTS)
    }
    waiting = list(prompts.items())
    engine = llm.llm_engine
    while waiting or engine.has_unfinished_requests():
        if waiting and rng.random() < 0.3:
            name, token_ids = waiting.pop()
            sampling = vllm.SamplingParams(
                temperature=0,
                max_tokens=rng.randrange(2, 60),
                ignore_eos=True,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            engine.add_request(name, {"prompt_token_ids": token_ids}, sampling)
        engine.step()
    names = {token_ids[0]: name for name, token_ids in prompts.items()}
    calls = [
        {"sampled": sampled, "token_ids": rows, "requests": [names[row[0]] for row in rows]}
        for sampled, rows in RecordingProposer.calls
    ]
    Path(output).write_text(json.dumps(calls, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

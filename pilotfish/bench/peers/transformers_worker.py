"""transformers' own generate as a peer: plain, with prompt lookup, with an assistant model.

`python -m pilotfish.bench.peers.transformers_worker --model FOLDER --threads 2 [--assistant FOLDER]`
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

from pilotfish.bench.peers.worker import SEED, Answer, OnTokens, serve

LOOKUP_TOKENS = 10
"""`prompt_lookup_num_tokens`, as transformers' own documentation sets it."""


class _Streamer(BaseStreamer):  # type: ignore[misc]  # transformers is not typed
    """Passes on every group of tokens but the first, which is the prompt."""

    def __init__(self, on_tokens: OnTokens) -> None:
        self._on_tokens = on_tokens
        self._is_prompt = True

    def put(self, value: torch.Tensor) -> None:
        if self._is_prompt:
            self._is_prompt = False
            return
        self._on_tokens(value.flatten().tolist())

    def end(self) -> None:
        """Nothing is held back."""


def load(model: str, assistant: str, dtype: str) -> tuple[dict[str, Any], Answer]:
    """The facts and the answering function for worker.serve."""
    target = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    drafter = AutoModelForCausalLM.from_pretrained(assistant, dtype=getattr(torch, dtype)).eval() if assistant else None
    modes: dict[str, dict[str, Any]] = {"plain": {}, "lookup": {"prompt_lookup_num_tokens": LOOKUP_TOKENS}}
    if drafter is not None:
        modes["assisted"] = {"assistant_model": drafter}

    def answer(
        prompt_token_ids: Sequence[int], max_tokens: int, temperature: float, mode: str, on_tokens: OnTokens
    ) -> None:
        input_ids = torch.tensor([list(prompt_token_ids)])
        sampling: dict[str, Any] = {"do_sample": False}
        if temperature:
            torch.manual_seed(SEED)
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        with torch.inference_mode():
            target.generate(
                input_ids,
                attention_mask=torch.ones_like(input_ids),
                max_new_tokens=max_tokens,
                streamer=_Streamer(on_tokens),
                **sampling,
                **modes[mode],
            )

    facts = {"version": transformers.__version__, "threads": torch.get_num_threads(), "modes": list(modes)}
    return facts, answer


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--assistant", default="")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    serve(lambda: load(options.model, options.assistant, options.dtype))


if __name__ == "__main__":
    main()

"""transformers' own generate as a peer (see worker.py): plain or with prompt lookup."""

from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer
from worker import Answer, OnTokens, options_parser, serve

LOOKUP_TOKENS = 10
"""`prompt_lookup_num_tokens`, as transformers' own documentation sets it."""


class Streamer(BaseStreamer):
    """Passes on every group of tokens but the first, which is the prompt."""

    def __init__(self, on_tokens: OnTokens) -> None:
        self._on_tokens = on_tokens
        self._is_prompt = True

    def put(self, value: torch.Tensor) -> None:
        if not self._is_prompt:
            self._on_tokens(value.flatten().tolist())
        self._is_prompt = False

    def end(self) -> None:
        """Nothing is held back."""


def load(model: str, threads: int) -> tuple[dict[str, Any], Answer]:
    torch.set_num_threads(threads)
    target = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()

    @torch.inference_mode()
    def answer(request: dict[str, Any], on_tokens: OnTokens) -> None:
        input_ids = torch.tensor(request["prompts"])
        options: dict[str, Any] = {"do_sample": False}
        if request["temperature"]:
            torch.manual_seed(request["seed"])
            options = {"do_sample": True, "temperature": request["temperature"], "top_k": 0, "top_p": 1.0}
        if request["mode"] == "lookup":
            options["prompt_lookup_num_tokens"] = LOOKUP_TOKENS
        mask = torch.ones_like(input_ids)
        streamer = Streamer(on_tokens)
        target.generate(
            input_ids, attention_mask=mask, max_new_tokens=request["max_tokens"], streamer=streamer, **options
        )

    return {"version": transformers.__version__, "threads": threads}, answer


if __name__ == "__main__":
    options = options_parser(__doc__).parse_args()
    serve(lambda: load(options.model, options.threads))

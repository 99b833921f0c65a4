"""llama.cpp as a peer (see worker.py), through llama-cpp-python: plain or with prompt lookup."""

from typing import Any

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from worker import Answer, OnTokens, options_parser, serve

LOOKUP_TOKENS = 2
"""What llama-cpp-python's documentation advises for processors without a GPU."""


def load(model: str, lookup: bool, threads: int, context: int) -> tuple[dict[str, Any], Answer]:
    llama = llama_cpp.Llama(
        model,
        n_ctx=context,
        n_threads=threads,
        n_threads_batch=threads,
        draft_model=LlamaPromptLookupDecoding(num_pred_tokens=LOOKUP_TOKENS) if lookup else None,
        # A draft model turns this on by itself, but then without the memory that prompts over a batch need.
        logits_all=lookup,
        verbose=False,
    )
    end = llama.token_eos()

    def answer(request: dict[str, Any], on_tokens: OnTokens) -> None:
        (prompt_token_ids,) = request["prompts"]
        llama.reset()  # else it would keep what the prompt has in common with the last one
        llama.set_seed(request["seed"])
        tokens = llama.generate(
            prompt_token_ids, temp=request["temperature"], top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0
        )
        for count, token_id in enumerate(tokens, start=1):
            on_tokens([token_id])
            if token_id == end or count == request["max_tokens"]:
                return

    return {"version": llama_cpp.__version__, "threads": threads}, answer


if __name__ == "__main__":
    options = options_parser(__doc__).parse_args()
    serve(lambda: load(options.model, options.mode == "lookup", options.threads, options.context))

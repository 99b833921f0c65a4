"""vLLM on the processor as a peer (see pilotfish.bench.peer_worker): plain or with n-gram speculation."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import count
from typing import Any

import vllm
from vllm.sampling_params import RequestOutputKind

from pilotfish.bench.peer_worker import SEED, Answer, OnTokens, serve

SPECULATION = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}


def load(model: str, lookup: bool, context: int) -> tuple[dict[str, Any], Answer]:
    llm = vllm.LLM(
        model,
        dtype="bfloat16",
        max_model_len=context,
        max_num_seqs=1,
        enable_prefix_caching=False,
        speculative_config=dict(SPECULATION) if lookup else None,
    )
    engine = llm.llm_engine
    request_ids = count()

    def answer(
        prompt_token_ids: Sequence[int], max_tokens: int, temperature: float, mode: str, on_tokens: OnTokens
    ) -> None:
        del mode  # decided when it was loaded
        sampling = vllm.SamplingParams(
            temperature=temperature, seed=SEED, max_tokens=max_tokens, output_kind=RequestOutputKind.DELTA
        )
        engine.add_request(str(next(request_ids)), {"prompt_token_ids": list(prompt_token_ids)}, sampling)
        while engine.has_unfinished_requests():
            for output in engine.step():
                on_tokens(list(output.outputs[0].token_ids))

    return {"version": vllm.__version__}, answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--lookup", action="store_true")
    parser.add_argument("--context", type=int, required=True)
    options = parser.parse_args()
    serve(lambda: load(options.model, options.lookup, options.context))


if __name__ == "__main__":
    main()

"""Runs in vLLM's own environment (vllm_process starts it): vLLM plain, with its n-gram lookup, or a remote drafter.

One JSON line in, one out:
In:  {"prompts": [[token ids], ..], "max_tokens": n, "concurrency": n}
Out: {"ready": {..}} once, then {"answers": [[token ids], ..], "elapsed_s": s, "counters": {..}} or {"error": "why"}
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

import vllm
from vllm.sampling_params import RequestOutputKind

REMOTE = "pilotfish.integrations.vllm.RemoteProposer"


def speculation(mode: str, num_draft_tokens: int) -> dict[str, Any] | None:
    """vLLM's speculative_config."""
    if mode == "plain":
        return None
    if mode == "ngram":
        return {
            "method": "ngram",
            "num_speculative_tokens": num_draft_tokens,
            "prompt_lookup_min": 2,
            "prompt_lookup_max": 4,
        }
    return {"method": "custom_class", "model": REMOTE, "num_speculative_tokens": num_draft_tokens}


def serve_batch(llm: vllm.LLM, request: dict[str, Any]) -> dict[str, Any]:
    """All prompts, so many of them in flight; greedy."""
    engine = llm.llm_engine
    sampling = vllm.SamplingParams(
        temperature=0, max_tokens=request["max_tokens"], output_kind=RequestOutputKind.FINAL_ONLY
    )
    waiting = list(enumerate(request["prompts"]))[::-1]
    answers: dict[str, list[int]] = {}
    start = time.perf_counter()
    num_running = 0
    while waiting or num_running:
        while waiting and num_running < request["concurrency"]:
            index, token_ids = waiting.pop()
            engine.add_request(str(index), {"prompt_token_ids": token_ids}, sampling)
            num_running += 1
        for output in engine.step():
            if output.finished:
                answers[output.request_id.split("-")[0]] = list(output.outputs[0].token_ids)
                num_running -= 1
    elapsed_s = time.perf_counter() - start
    in_order = [answers[str(index)] for index in range(len(request["prompts"]))]
    return {"answers": in_order, "elapsed_s": elapsed_s, "counters": llm.collective_rpc(counters)[0]}


def counters(worker: Any) -> dict[str, float]:
    """Of the proposer, if it counts."""
    counted = getattr(getattr(worker.model_runner, "drafter", None), "counters", None)
    if counted is None:
        return {}
    return {
        "num_drafts": counted.acceptance.num_rounds,
        "num_draft_tokens": counted.acceptance.num_draft_tokens,
        "num_accepted_tokens": counted.acceptance.num_accepted_tokens,
        "num_missed_deadlines": counted.num_missed_deadlines,
        "num_sequences": counted.num_sequences,
        "num_faults": counted.num_faults,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--mode", choices=("plain", "ngram", "remote"), required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--max-num-seqs", type=int, default=8)
    parser.add_argument("--num-draft-tokens", type=int, default=5)
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="no compilation: a start within seconds")
    parser.add_argument("--pilotfish", type=json.loads, default={}, help="additional_config's section, as JSON")
    options = parser.parse_args()
    # What libraries print must not get between the lines.
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(value: dict[str, Any]) -> None:
        lines.write(json.dumps(value) + "\n")
        lines.flush()

    llm = vllm.LLM(
        options.model,
        dtype="bfloat16",
        max_model_len=options.context,
        max_num_seqs=options.max_num_seqs,
        enable_prefix_caching=False,
        enforce_eager=options.eager,
        tensor_parallel_size=options.tensor_parallel_size,
        speculative_config=speculation(options.mode, options.num_draft_tokens),
        additional_config={"pilotfish": options.pilotfish},
    )
    tell({"ready": {"version": vllm.__version__}})
    for line in sys.stdin:
        try:
            tell(serve_batch(llm, json.loads(line)))
        # Whatever vLLM raises: the other side decides what it means.
        except Exception as error:
            tell({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()

"""vLLM on the processor as a peer (see worker.py): plain, with its n-gram lookup, or with drafts
from Pilotfish's draft service. Answers several prompts at once; its counters are those of the remote proposer."""

import argparse
import json
import os
from typing import Any

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # functions for collective_rpc
}

import vllm  # after its settings: it reads them when it is imported
from vllm.sampling_params import RequestOutputKind
from worker import Answer, OnTokens, options_parser, serve


def speculation(mode: str, num_draft_tokens: int) -> dict[str, Any] | None:
    """vLLM's speculative_config."""
    if mode == "plain":
        return None
    if mode == "lookup":
        lookup = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
        return {"method": "ngram", "num_speculative_tokens": num_draft_tokens, **lookup}
    remote = "pilotfish.integrations.vllm.RemoteProposer"
    return {"method": "custom_class", "model": remote, "num_speculative_tokens": num_draft_tokens}


def load(options: argparse.Namespace) -> tuple[dict[str, Any], Answer]:
    llm = vllm.LLM(
        options.model,
        dtype="bfloat16",
        max_model_len=options.context,
        max_num_seqs=options.max_num_seqs,
        enable_prefix_caching=False,
        enforce_eager=options.eager,
        speculative_config=speculation(options.mode, options.num_draft_tokens),
        additional_config={"pilotfish": options.pilotfish},
    )
    engine = llm.llm_engine

    def answer(request: dict[str, Any], on_tokens: OnTokens) -> dict[str, float]:
        sampling = vllm.SamplingParams(
            temperature=request["temperature"],
            seed=request["seed"],
            max_tokens=request["max_tokens"],
            output_kind=RequestOutputKind.DELTA,
        )
        waiting = list(enumerate(request["prompts"]))[::-1]
        num_running = 0
        while waiting or num_running:
            while waiting and num_running < request["concurrency"]:
                index, token_ids = waiting.pop()
                engine.add_request(str(index), {"prompt_token_ids": token_ids}, sampling)
                num_running += 1
            for output in engine.step():
                on_tokens(list(output.outputs[0].token_ids), int(output.request_id.split("-")[0]))
                num_running -= output.finished
        return dict(llm.collective_rpc(counters)[0])

    return {"version": vllm.__version__}, answer


def counters(worker: Any) -> dict[str, float]:
    """Counters of the proposer, if it counts."""
    counted = getattr(getattr(worker.model_runner, "drafter", None), "counters", None)
    if counted is None:
        return {}
    return {
        "num_drafts": counted.acceptance.num_rounds,
        "num_draft_tokens": counted.acceptance.num_draft_tokens,
        "num_accepted_tokens": counted.acceptance.num_accepted_tokens,
        "num_missed_deadlines": counted.num_missed_deadlines,
        "num_sequences": counted.num_sequences,
        "num_faults": counted.num_proposer_faults + counted.num_drafter_faults,
    }


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--max-num-seqs", type=int, default=1)
    parser.add_argument("--num-draft-tokens", type=int, default=5)
    parser.add_argument("--eager", action="store_true", help="no compilation: a start within seconds")
    parser.add_argument("--pilotfish", type=json.loads, default={}, help="additional_config's section, as JSON")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    serve(lambda: load(options))


if __name__ == "__main__":
    main()

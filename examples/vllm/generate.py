"""vLLM with Pilotfish's drafts: python examples/vllm/generate.py MODEL [PROMPT], in vLLM's environment."""

import sys

import vllm


def main() -> None:
    model = sys.argv[1]
    prompt = sys.argv[2] if len(sys.argv) > 2 else "Count from one to twenty."
    llm = vllm.LLM(
        model,
        dtype="bfloat16",
        max_model_len=2048,
        enforce_eager=True,  # starts sooner, answers later
        disable_log_stats=False,
        speculative_config={
            "method": "custom_class",
            "model": "pilotfish.integrations.vllm.RemoteProposer",
            "num_speculative_tokens": 8,
        },
        # Or PILOTFISH_VLLM_DRAFT_ADDRESSES, which comes before it.
        additional_config={"pilotfish": {"draft_addresses": ["127.0.0.1:50062"]}},
    )
    sampling = vllm.SamplingParams(temperature=0, max_tokens=128)
    (answer,) = llm.chat([{"role": "user", "content": prompt}], sampling)
    print(answer.outputs[0].text)
    counts = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
    accepted, output = counts["vllm:spec_decode_num_accepted_tokens"], len(answer.outputs[0].token_ids)
    print(f"{output} tokens, {accepted} of them drafted by Pilotfish and accepted by vLLM")


if __name__ == "__main__":
    main()

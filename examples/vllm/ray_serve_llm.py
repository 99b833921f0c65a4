"""Ray Serve LLM whose vLLM engines take their drafts from Pilotfish: serve run examples.vllm.ray_serve_llm:app

Needs `ray[serve,llm]` and Pilotfish's `client` extra in the engines' environment (an image, or the runtime_env below,
with this repository's folder at /opt/pilotfish on every node), and a draft pool: examples/vllm/values.yaml deploys one
beside it. Ray 2.60 pins vLLM 0.29 in its `llm` extra, and the proposer's interface is vLLM 0.32's: the engines' image
needs that vLLM. Its names were checked, it was not run.
"""

from ray.serve.llm import LLMConfig, build_openai_app

config = LLMConfig(
    model_loading_config={"model_id": "llama-70b", "model_source": "meta-llama/Llama-3.3-70B-Instruct"},
    deployment_config={"autoscaling_config": {"min_replicas": 1, "max_replicas": 2}},
    accelerator_type="H100",
    engine_kwargs={
        "tensor_parallel_size": 4,
        "speculative_config": {
            "method": "custom_class",
            "model": "pilotfish.integrations.vllm.RemoteProposer",
            "num_speculative_tokens": 8,
        },
        "additional_config": {
            "pilotfish": {
                "draft_addresses": ["dns:///pilotfish-draft:50062"],
                "security": {"token_file": "/etc/pilotfish/link-token"},
            }
        },
    },
    runtime_env={"pip": ["/opt/pilotfish[client]"]},
)
app = build_openai_app({"llm_configs": [config]})

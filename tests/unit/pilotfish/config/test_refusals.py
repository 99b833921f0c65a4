"""What a configuration refuses before a process starts with it, and how it names what is wrong."""

import pytest

from pilotfish.config import load_config
from pilotfish.errors import ConfigError

SPECULATION = "orchestrator.speculation"
SCALING = "deployment.target.autoscaling"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("target.prot=1", r"target\.prot: there is no such key; did you mean port\?"),
        ("tagret.port=1", r"tagret: there is no such key; did you mean target\?"),
        ("target.drafter.modle=x", r"did you mean model\?"),
        ("orchestrator.http_port=1", r"did you mean http\.port\?"),
        ("target.zzz=1", r"target\.zzz: there is no such key$"),
        ("target=5", r"target is a section: give values to its keys \(target\.KEY\)"),
        ("target.port=[", r"'\[' is not a YAML value"),
        ("orchestrator.target_addresses=a:1", r"orchestrator\.target_addresses must be a list, such as \[a:1\]$"),
        ("orchestrator.target_addresses=['a:99999']", r"'a:99999' is not an address"),
        ("orchestrator.draft_addresses=['dns:///a:0']", r"'dns:///a:0' is not an address"),
        (
            "draft.engine.num_threads=-1",
            r"the configuration: draft\.engine\.num_threads: Input should be greater than or equal to 0",
        ),
        ("draft.engine.quantization=int3", r"draft\.engine\.quantization.*'lossless', 'int8', 'int4' or 'fp8'"),
        ("target.engine.device=gpu", "it must be auto, cpu, cuda or cuda:N"),
        ("target.engine.device=cuda:one", "it must be auto, cpu, cuda or cuda:N"),
        ("target.engine.gpu_memory_utilization=1.1", "gpu_memory_utilization: .* less than or equal to 1"),
        ("target.engine.kv_cache_tokens=31", "kv_cache_tokens must be"),
        ("target.drafter.lookup=parrot", r"target\.drafter\.lookup.*'none', 'ngram' or 'suffix'"),
        ("draft.metrics_port=70000", r"draft\.metrics_port"),
        ("draft.lookup_min_probability=1.5", "lookup_min_probability: .* less than or equal to 1"),
        ("draft.suffix_shared_tokens=100", "must be 0 .* or at least 256"),
        ("draft.lookup_min_accepted_tokens=-1", "lookup_min_accepted_tokens"),
        (f"{SPECULATION}.lookup=parrot", r"speculation\.lookup.*'none', 'ngram' or 'suffix'"),
        (f"{SPECULATION}.disable_by_batch_size=-1", "disable_by_batch_size"),
        (f"{SPECULATION}.disable_by_batch_size_hysteresis=-1", "disable_by_batch_size_hysteresis"),
        (f"{SPECULATION}.min_acceptance_rate=1.5", "min_acceptance_rate"),
        (f"{SPECULATION}.min_output_tokens=0", "min_output_tokens"),
        (f"{SPECULATION}.draft_ahead_tokens=257", "draft_ahead_tokens: .* less than or equal to 256"),
        (f"{SPECULATION}.num_speculative_tokens_per_batch_size=[[5, 2, 3]]", r"must hold \[first, last, K\]"),
        (f"{SPECULATION}.steps.scale=[bad, good, bad]", "steps.scale holds an answer twice"),
        (f"{SPECULATION}.steps.scale=[bad, good]", "steps.least_score must be below 2"),
        (f"{SPECULATION}.steps.ends=[]", "steps.ends"),
        (f"{SPECULATION}.steps.ends=['']", "steps.ends"),
        ("emulation.step_acceptance=1.5", "step_acceptance"),
        ("orchestrator.routing.policy=random", "policy"),
        ("orchestrator.routing.cache_threshold=1.5", "cache_threshold"),
        ("orchestrator.routing.balance_abs_threshold=-1", "balance_abs_threshold"),
        ("orchestrator.routing.balance_rel_threshold=0.5", "balance_rel_threshold"),
        ("orchestrator.routing.max_kv_usage=0", "max_kv_usage"),
        ("orchestrator.routing.max_prefix_blocks=0", "max_prefix_blocks"),
        ("orchestrator.max_queued_requests=-1", "max_queued_requests"),
        ("orchestrator.max_queued_requests_per_client=0", "max_queued_requests_per_client"),
        ("orchestrator.max_queue_time_s=0", "max_queue_time_s"),
        ("orchestrator.silence_timeout_s=0.9", "silence_timeout_s"),
        ("orchestrator.http.port=65536", "port"),
        ("orchestrator.http.max_choices=0", "max_choices"),
        ("orchestrator.http.keep_alive_timeout_s=0", "keep_alive_timeout_s"),
        ("orchestrator.num_replicas=0", r"orchestrator\.num_replicas: .* greater than 0"),
        ("deployment.draft.num_gpus=1.5", "Ray gives shares of one GPU, or whole ones"),
        ("deployment.draft.num_gpus=-1", "num_gpus: .* greater than or equal to 0"),
        ("deployment.draft.num_cpus=-1", r"deployment\.draft\.num_cpus: .* greater than or equal to 0"),
        ("deployment.draft.surge_percent=101", "surge_percent: .* less than or equal to 100"),
        ("deployment.draft.resources={fish: 0}", r"resources\.fish: .* greater than 0"),
        ("deployment.orchestrator.drain_s=-1", "drain_s"),
        ("deployment.orchestrator.autoscaling.max_replicas=2", "there is no such key"),
        (f"{SCALING}={{min_replicas: 3, max_replicas: 2}}", "max_replicas must be at least min"),
        (f"{SCALING}.min_replicas=0", "min_replicas"),
        (f"{SCALING}.target_sequences=0", "target_sequences"),
        (f"{SCALING}.target_kv_usage=1.1", "target_kv_usage"),
        (f"{SCALING}.look_back_s=5", "look_back_s must exceed report_interval_s"),
        ("telemetry.otlp_endpoint=localhost:4317", "http:// or https://"),
        ("telemetry.trace_sampling=1.5", "trace_sampling"),
        ("telemetry.max_round_spans=-1", "max_round_spans"),
        ("security.internal.certificate=a", r"security\.internal needs certificate, private_key and ca together"),
        ("security.internal.server_name=a", "server_name is the name in certificates"),
        ("security.internal.token=abc", "token"),
        ("security.public.certificate=a", "certificate and private_key together"),
        ("security.public.client_ca=a", "client_ca needs certificate"),
        ("security.public.max_header_bytes=10", "greater than or equal to 4096"),
        ("security.public.request_read_timeout_s=0", "greater than 0"),
        ("security.public.max_connections=0", "greater than 0"),
        ("emulation.acceptance=1.1", "acceptance"),
        ("emulation.time_scale=0", "time_scale"),
    ],
)
def test_the_key_and_what_would_be_right_are_told(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_config(overrides=[override])

"""The configuration, declared once: frozen dataclasses, validated when they are made.

One YAML file serves every process; each reads its own section. `load_config` turns YAML and
`section.key=value` overrides into a `Config`; everything else gets its part passed in.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from pilotfish.errors import ConfigError

_STRICT = ConfigDict(extra="forbid")

Quantization = Literal["none", "lossless", "int8", "int4"]


def default_cache_dir() -> str:
    """$PILOTFISH_CACHE, else the XDG cache folder."""
    root = os.environ.get("PILOTFISH_CACHE")
    if root:
        return root
    return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pilotfish")


def environment(variables: Mapping[str, str] | None = None, *, without: Collection[str] = ()) -> dict[str, str]:
    """This process's environment for a child: with `variables` set and those named in `without` left out."""
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return {**kept, **(variables or {})}


def _yaml_word(value: object) -> object:
    """`on` and `off` as they were written: YAML 1.1 reads them as booleans."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """One engine: the paged-KV batch executor inside a target or draft replica."""

    __pydantic_config__ = _STRICT

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of weights, activations and KV cache. bfloat16 halves the bytes read for each token."""
    quantization: Quantization = "none"
    """Of the weights, in blocks of 32; a step is bound by reading them. `lossless`: tensors that were quantised
    before (GGUF's Q8_0 and Q4_1) are packed as they were, with the same outputs bit for bit; where there are none,
    or no native CPU kernels, it changes nothing. `int8` and `int4` (with an int8 output projection) round all
    linears and need the native CPU kernels."""
    device: str = "cpu"
    """A torch device."""
    num_threads: int = 0
    """Threads of torch in the engine process; 0 takes the cores this process may use."""
    deterministic: bool = True
    """Cut work so that logits do not depend on the batch (probed at start-up). Costs prefill speed."""
    compile: bool = True
    """Compile the native CPU kernels with the system's C++ compiler (some seconds once, cached on disk) and
    use them where they support the model; false, or without a compiler: torch's own operations."""
    max_context_tokens: int = 0
    """Prompt plus output at most; 0 takes the model's own limit."""
    kv_cache_tokens: int = 32768
    """Capacity of the paged KV pool in tokens, over all sequences."""
    max_sequences: int = 64
    """Sequences open at once; an orchestrator lets more requests wait in line."""
    max_batch_tokens: int = 512
    """Tokens computed in one step at most: bounds the time decodes wait behind a prefill."""
    prefix_caching: bool = True
    """Share the KV blocks of equal prefixes."""
    max_draft_tokens: int = 32
    """Draft tokens in one round at most, over all branches of a tree."""

    def __post_init__(self) -> None:
        _require(self.num_threads >= 0, "num_threads must be at least 0 (0: all cores of this process)")
        _require(
            self.quantization not in ("int8", "int4")
            or (self.compile and self.dtype == "bfloat16" and self.device == "cpu"),
            f"quantization {self.quantization} needs dtype bfloat16, device cpu and compile true: "
            "only the native CPU kernels compute with quantised weights",
        )
        _require(self.max_context_tokens >= 0, "max_context_tokens must be at least 0 (0: the model's limit)")
        _require(self.kv_cache_tokens >= 32, "kv_cache_tokens must be at least 32 (two blocks)")
        _require(self.max_sequences >= 1, "max_sequences must be at least 1")
        _require(self.max_draft_tokens >= 1, "max_draft_tokens must be at least 1")
        _require(
            self.max_batch_tokens > self.max_draft_tokens,
            "max_batch_tokens must exceed max_draft_tokens: a verification runs in one step",
        )


@dataclass(frozen=True, kw_only=True)
class SelfDrafterConfig:
    """A drafter beside the target, in its engine: it looks at the target's hidden states, and takes no round trip."""

    __pydantic_config__ = _STRICT

    proposer: Literal["none", "eagle3", "medusa", "early_exit"] = "none"
    """`eagle3` and `medusa`: heads trained for this target. `early_exit`: the target's own first layers."""
    lookup: Literal["none", "ngram", "suffix"] = "none"
    """Looked up first (as `draft.*` says): the proposer drafts only where the lookup is not confident
    (`draft.hybrid_min_accepted_tokens`). With proposer `none` the lookup alone drafts."""
    model: str = ""
    """Folder of the heads, or the name of one that comes with Pilotfish."""
    exit_layer: int = 0
    """Layers that draft, for `early_exit`; 0 takes three quarters of them."""

    def __post_init__(self) -> None:
        needs_model = self.proposer in ("eagle3", "medusa")
        _require(
            bool(self.model) or not needs_model,
            f"target.self_drafter.model is empty; {self.proposer} needs the folder of its heads",
        )
        _require(self.exit_layer >= 0, "target.self_drafter.exit_layer must be at least 0 (0: chosen)")


@dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """The target service."""

    __pydantic_config__ = _STRICT

    model: str = "smollm2-135m-instruct"
    """Catalogue name, hub id or local folder."""
    host: str = "127.0.0.1"
    """Address to listen on. The internal links carry no authentication yet: keep it private."""
    port: int = 50061
    """0 takes a free port (under Ray it always does)."""
    num_replicas: int = 1
    """Replicas under Ray Serve."""
    self_drafter: SelfDrafterConfig = field(default_factory=SelfDrafterConfig)
    feature_layers: Literal["auto", "eagle3"] | tuple[int, ...] = "auto"
    """Layers whose inputs are kept beside the KV cache and sent to drafters that ask for them: some 15 % of the
    cache's memory. `eagle3`: the three of published EAGLE-3 heads. `auto`: these if draft.proposer is eagle3 and no
    drafter lives beside the target, else none; empty: none."""
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "target.port must be between 0 and 65535")
        _require(self.num_replicas >= 1, "target.num_replicas must be at least 1")
        _require(
            self.feature_layers == "auto" or not self.feature_layers or self.self_drafter.proposer == "none",
            f"target.feature_layers is {self.feature_layers}: features are kept for drafters elsewhere, but "
            f"{self.self_drafter.proposer} drafts beside the target: configure one of them",
        )


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """The draft service."""

    __pydantic_config__ = _STRICT

    proposer: str = "ngram"
    """`ngram` (prompt lookup), `suffix` (suffix decoding), `model` (a causal LM with the target's tokenizer),
    `eagle3` (a head on the target's features) or `hybrid` (suffix decoding where it is confident, else the model)."""
    model: str = "smollm2-135m-instruct"
    """The drafter of proposers `model` and `hybrid`; for the others the model whose tokenizer is used."""
    head: str = "smollm2-135m-instruct-eagle3"
    """Of proposer `eagle3`: a head's folder, or the name of one that comes with Pilotfish. draft.model is then the
    target, whose embeddings and tokenizer are used."""
    feature_format: Literal["bf16", "fp8"] = "bf16"
    """How the target's features travel to proposer `eagle3`. fp8 halves the bytes and costs some acceptance."""
    host: str = "127.0.0.1"
    port: int = 50062
    num_replicas: int = 1
    """Replicas under Ray Serve; 0 deploys no draft pool."""
    prompt_lookup_min: int = 2
    """Shortest n-gram that is looked up (vLLM's name)."""
    prompt_lookup_max: int = 4
    """Longest n-gram that is looked up, tried first (vLLM's name)."""
    lookup_min_probability: float = 0.08
    """A lookup drafts a token while its whole path is at least this likely to be accepted, as estimated from
    the match. About what verifying a token costs, in decode steps, times the tokens that a step yields."""
    suffix_shared_tokens: int = 65536
    """Recent outputs of other requests in which `suffix` looks, too; some 500 bytes of memory each. 0 keeps
    requests apart: otherwise how fast an answer comes can tell that somebody else got a similar one."""
    hybrid_min_accepted_tokens: float = 1.0
    """`hybrid` answers with a lookup that promises at least this many accepted tokens, else asks the model:
    a lookup costs nothing, so that it is worth as much as a model that promises somewhat more."""
    top_m: int = 32
    """Pairs in a sparse draft distribution (rejection mode)."""
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "draft.port must be between 0 and 65535")
        _require(self.num_replicas >= 0, "draft.num_replicas must be at least 0")
        _require(
            1 <= self.prompt_lookup_min <= self.prompt_lookup_max,
            "draft.prompt_lookup_min must be at least 1 and at most prompt_lookup_max",
        )
        _require(0 <= self.lookup_min_probability <= 1, "draft.lookup_min_probability must be between 0 and 1")
        _require(
            self.suffix_shared_tokens == 0 or self.suffix_shared_tokens >= 256,
            "draft.suffix_shared_tokens must be 0 (nothing is shared) or at least 256",
        )
        _require(self.hybrid_min_accepted_tokens >= 0, "draft.hybrid_min_accepted_tokens must be at least 0")
        _require(self.top_m >= 1, "draft.top_m must be at least 1")


@dataclass(frozen=True, kw_only=True)
class SpeculationConfig:
    """Defaults of speculation; a request may ask otherwise within the limits."""

    __pydantic_config__ = _STRICT

    mode: Annotated[Literal["auto", "off", "on"], BeforeValidator(_yaml_word)] = "auto"
    num_speculative_tokens: int = 5
    """Draft tokens a round (vLLM's name)."""
    proposer: str = "draft"
    """`draft`: the draft pool. `ngram`, `suffix`: looked up in the orchestrator. `eagle3`, `medusa`, `early_exit`:
    the drafter beside the target (`target.self_drafter`)."""
    lookup: Literal["none", "ngram", "suffix"] = "none"
    """Before the draft pool: it is asked only where this lookup in the orchestrator is not confident
    (`draft.hybrid_min_accepted_tokens`), which saves the round trip as well."""
    tree_nodes: int = 0
    """Draft tokens of a round at most where the proposer can branch: a tree, num_speculative_tokens deep, of the
    likeliest continuations (SGLang's speculative_num_draft_tokens). 0: chains."""
    tree_branching: int = 4
    """Candidates of a node, and nodes that each level of a tree expands (SGLang's speculative_eagle_topk)."""
    draft_deadline_ms: float = 0
    """A proposal later than this is ignored for its round; 0 takes one measured decode step per draft token."""
    decode_run_tokens: int = 16
    """Tokens of one Decode run: the orchestrator looks again this often while speculation is off."""

    def __post_init__(self) -> None:
        _require(self.num_speculative_tokens >= 1, "speculation.num_speculative_tokens must be at least 1")
        _require(0 <= self.tree_nodes <= 63, "speculation.tree_nodes must be between 0 (chains) and 63")
        _require(self.tree_branching >= 1, "speculation.tree_branching must be at least 1")
        _require(self.draft_deadline_ms >= 0, "speculation.draft_deadline_ms must be at least 0 (0: measured)")
        _require(self.decode_run_tokens >= 1, "speculation.decode_run_tokens must be at least 1")


@dataclass(frozen=True, kw_only=True)
class OrchestratorConfig:
    """The orchestrator: the public API."""

    __pydantic_config__ = _STRICT

    host: str = "127.0.0.1"
    port: int = 50051
    target_addresses: tuple[str, ...] = ()
    """host:port of each target replica; empty under Ray, which finds them, and in `pilotfish up`."""
    draft_addresses: tuple[str, ...] = ()
    """host:port of each draft replica; empty: none, or found by Ray."""
    max_concurrent_requests: int = 256
    """More are refused with RESOURCE_EXHAUSTED."""
    max_prompt_bytes: int = 4_000_000
    """Longer prompts are refused before tokenising."""
    connect_timeout_s: float = 60.0
    """A request waits this long for a target replica before UNAVAILABLE, and for room on one before
    RESOURCE_EXHAUSTED."""
    slow_reader_tokens: int = 1024
    """Output tokens buffered for a client that reads slowly before its sequence pauses."""
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "orchestrator.port must be between 0 and 65535")
        _require(self.max_concurrent_requests >= 1, "orchestrator.max_concurrent_requests must be at least 1")
        _require(self.max_prompt_bytes >= 1, "orchestrator.max_prompt_bytes must be at least 1")
        _require(self.connect_timeout_s > 0, "orchestrator.connect_timeout_s must be above 0")
        _require(self.slow_reader_tokens >= 1, "orchestrator.slow_reader_tokens must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything, one section per process."""

    __pydantic_config__ = _STRICT

    target: TargetConfig = field(default_factory=TargetConfig)
    draft: DraftConfig = field(default_factory=DraftConfig)
    orchestrator: OrchestratorConfig = field(default_factory=OrchestratorConfig)
    cache_dir: str = field(default_factory=default_cache_dir)
    """Models and compiled kernels; $PILOTFISH_CACHE overrides the default."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"


_ADAPTER = TypeAdapter(Config)


def config_from_dict(values: dict[str, Any], source: str = "the configuration") -> Config:
    """Build a Config; unknown keys and wrong types raise ConfigError naming the key."""
    try:
        return _ADAPTER.validate_python(values)
    except ValidationError as error:
        lines = [
            f"{'.'.join(str(part) for part in item['loc']) or '(top level)'}: {item['msg']}" for item in error.errors()
        ]
        raise ConfigError(f"{source}: " + "; ".join(lines)) from None


def load_config(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file (None: all defaults) and apply `section.key=value` overrides (YAML values)."""
    values: Any = {}
    if path is not None:
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise ConfigError(f"cannot read configuration {path}: {error.strerror}") from None
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is not YAML: {error}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{path} must hold a mapping of sections (target, draft, orchestrator)")
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator:
            raise ConfigError(f"override {override!r} must look like section.key=value")
        node = values
        *sections, last = key.split(".")
        for section in sections:
            node = node.setdefault(section, {})
            if not isinstance(node, dict):
                raise ConfigError(f"override {override!r}: {section} is not a section")
        node[last] = yaml.safe_load(text)
    return config_from_dict(values, source=str(path) if path is not None else "the configuration")


def config_from_yaml(text: str) -> Config:
    """The Config that config_to_yaml wrote."""
    return config_from_dict(yaml.safe_load(text))


def config_to_yaml(config: Config) -> str:
    """The YAML that loads as this Config."""
    values = _ADAPTER.dump_python(config, mode="json")
    return yaml.safe_dump(values, sort_keys=False)


def replace(config: Config, **sections: Any) -> Config:
    """A copy with some sections replaced."""
    return dataclasses.replace(config, **sections)

"""Loads a model, or a draft head, and builds the engine that a replica runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from pilotfish.config import DEFAULT_KV_CACHE_TOKENS, Config, EngineConfig
from pilotfish.config.shipped_heads import head_folder
from pilotfish.drafter_registry import room
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import FeatureStore, build_feature_store
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.engine.drafting.in_target_factory import build_in_target_drafter, with_lookup
from pilotfish.engine.process.calibration import calibrate
from pilotfish.engine.process.cores import usable_cores
from pilotfish.engine.process.gpu import record_graphs, with_kv_cache_tokens
from pilotfish.engine.process.wire import Role
from pilotfish.errors import ConfigError, InternalError
from pilotfish.messages import CloseSequence, Command, Decode, OpenSequence, Proposal, Propose, SequenceError, Verify
from pilotfish.models.attention.paged import AttentionShape
from pilotfish.models.device import enter_device, resolve_device
from pilotfish.models.factory import BuiltDecoder, build_decoder
from pilotfish.models.feature_codec import encode_features
from pilotfish.models.feature_head import FeatureHead
from pilotfish.models.gpu_factory import choose_attention, graph_plan
from pilotfish.models.loading import LoadedModel, load_model
from pilotfish.models.store.folder import read_metadata
from pilotfish.models.store.pull import pull_model
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.parallel.build import build_parallel_decoder
from pilotfish.types import (
    BLOCK_SIZE,
    AcceptanceMode,
    ModelInfo,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    TreeRequest,
)

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def build_engine(config: Config, role: Role, *, rank_folder: Path | None = None) -> EngineCore:
    """The engine of the configuration's target or draft section. Raises PilotfishError kinds of loading.

    rank_folder: of a target in several ranks, see pilotfish.parallel.ranks.start_ranks.
    """
    service = config.target if role == "target" else config.draft
    engine = service.engine
    loaded, built = _decoder(config, role, rank_folder)
    drafter: InTargetDrafter | None = None
    features: FeatureStore | None = None
    if role == "target":
        wanted = config.target.drafter
        drafter = build_in_target_drafter(wanted, loaded, built.decoder, top_m=config.draft.top_m)
        drafter = with_lookup(wanted, config.draft, drafter)
        features = build_feature_store(config, loaded, built.decoder)
    engine = with_kv_cache_tokens(engine, built.decoder, _bytes_beside(loaded, built, drafter, features))
    info = ModelInfo(
        model_id=loaded.model_id,
        tokenizer_fingerprint=loaded.fingerprint,
        vocab_size=built.decoder.vocab_size,
        max_context_tokens=built.decoder.max_context_tokens,
        dtype=_dtype(engine, on_gpu=built.decoder.device.type == "cuda"),
        deterministic=built.deterministic,
        proposer="model" if role == "draft" else "" if drafter is None else drafter.name,
        tokenizer_path=str(loaded.folder),
        feature_layers=() if features is None else features.layers,
    )
    core = EngineCore(
        built.decoder,
        engine,
        info,
        top_m=config.draft.top_m,
        drafter=drafter,
        features=features,
        grammars=Grammars.of_model(loaded.folder, built.decoder.vocab_size),
    )
    record_graphs(built.decoder)
    warm_up(core)
    if role == "target":
        core.begin_with(calibrate(core, engine.max_batch_tokens))
    return core


def build_head_engine(config: Config) -> HeadCore:
    """The engine of a head apart from its target, from the configuration's draft section.

    Raises: ModelError kinds when the head or the target's folder cannot be had, or do not belong together;
    ConfigError.
    """
    draft, engine = config.draft, config.draft.engine
    if engine.quantization != "none":
        raise ConfigError("draft.engine.quantization does not apply to a head: set it to none")
    engine = replace(engine, kv_cache_tokens=engine.kv_cache_tokens or DEFAULT_KV_CACHE_TOKENS)
    device = resolve_device(engine.device)
    enter_device(device)
    torch.set_num_threads(_num_threads(engine))
    folder = head_folder(draft.head)
    target_folder = pull_model(draft.model, Path(config.cache_dir))
    metadata = read_metadata(target_folder)
    drafter = room(draft.proposer, "draft")
    head = drafter.load_standalone(folder, target_folder, dtype=_DTYPES[engine.dtype])
    model = ModelInfo(
        model_id=folder.name,
        tokenizer_fingerprint=tokenizer_fingerprint(target_folder),
        vocab_size=metadata.vocab_size,
        max_context_tokens=engine.max_context_tokens or metadata.max_context_tokens,
        dtype=engine.dtype,
        deterministic=engine.deterministic,
        proposer=draft.proposer,
        tokenizer_path=str(target_folder),
        feature_layers=head.config.feature_layers,
    )
    shape = AttentionShape(head.config.num_key_value_heads, head.config.head_dim, 1.0)
    group_size = head.config.num_attention_heads // head.config.num_key_value_heads
    dtype = head.fc.weight.dtype
    row_attention = (
        choose_attention(engine.attention, [shape], group_size, dtype, device) if device.type == "cuda" else None
    )
    runtime: FeatureHead = drafter.build_standalone(
        head,
        use_kernels=engine.compile,
        device=str(device),
        num_threads=_num_threads(engine),
        max_context_tokens=model.max_context_tokens,
        cache_dir=Path(config.cache_dir),
        deterministic=engine.deterministic,
        row_attention=row_attention,
        graphs=None if row_attention is None else graph_plan(engine, model.max_context_tokens),
    )
    grammars = Grammars.of_model(target_folder, model.vocab_size)
    core = HeadCore(runtime, engine, model, top_m=draft.top_m, grammars=grammars)
    warm_up_head(core)
    return core


def _decoder(config: Config, role: Role, rank_folder: Path | None) -> tuple[LoadedModel, BuiltDecoder]:
    """The model and what runs it: in this process, or over the ranks of a target."""
    service = config.target if role == "target" else config.draft
    engine = service.engine
    if role == "target" and config.target.tensor_parallel_size > 1:
        threads = engine.num_threads or max(1, _num_threads(engine) // config.target.tensor_parallel_size)
        return build_parallel_decoder(config, threads, rank_folder)
    torch.set_num_threads(_num_threads(engine))
    device = resolve_device(engine.device)
    enter_device(device)
    # What is to be rounded is loaded to the CPU, so that a GPU never holds it whole.
    loading_device = torch.device("cpu") if engine.quantization in ("int8", "fp8") else device
    loaded = load_model(service.model, cache_dir=config.cache_dir, dtype=_DTYPES[engine.dtype], device=loading_device)
    return loaded, build_decoder(
        loaded, engine, num_threads=_num_threads(engine), cache_dir=Path(config.cache_dir), device=device
    )


def _dtype(engine: EngineConfig, *, on_gpu: bool) -> str:
    """What targets must agree on to give the same answers: lossless weights give those of the plain ones."""
    if engine.quantization not in ("int8", "int4", "fp8"):
        return engine.dtype
    return f"{engine.dtype}, {engine.quantization} weights and activations{'' if on_gpu else ' in blocks'}"


def _bytes_beside(
    loaded: LoadedModel, built: BuiltDecoder, drafter: InTargetDrafter | None, features: FeatureStore | None
) -> int:
    """What drafter and features keep beside each block of the decoder's cache."""
    drafter_bytes = 0 if drafter is None else drafter.allocate(2) // 2
    if features is None:
        return drafter_bytes
    hidden_size: int = loaded.model.config.get_text_config().hidden_size
    return drafter_bytes + BLOCK_SIZE * len(features.layers) * hidden_size * built.decoder.dtype.itemsize


def _num_threads(engine: EngineConfig) -> int:
    """Threads to compute with: the configured number, or the cores this process may use."""
    return engine.num_threads or usable_cores()


_PROMPT = tuple(range(1, 40))
_SAMPLINGS = (
    SamplingParams(temperature=0, num_logprobs=1),
    SamplingParams(temperature=0.8, top_p=0.9, top_k=40, repetition_penalty=1.1),
    SamplingParams(acceptance=AcceptanceMode.REJECTION),
)


def warm_up(core: EngineCore) -> None:
    """Every kind of work once in every mode; leaves no sequence and no cached prefix behind.

    Raises: InternalError when a step fails.
    """
    token_ids = tuple(token_id % core.model.vocab_size for token_id in _PROMPT)[: core.model.max_context_tokens // 2]
    length, drafts = len(token_ids), token_ids[:2]
    one_hots = tuple(SparseDistribution((token_id,), (1.0,)) for token_id in drafts)
    for sampling in _SAMPLINGS:
        opened = OpenSequence(0, token_ids, sampling)
        _run(core, opened, Decode(0, length, 1))
        _run(core, Verify(0, length + 1, drafts, one_hots, parents=(-1, -1)))
        _run(core, CloseSequence(0), opened, Propose(0, length, (), 2))
        _run(core, Propose(0, length, (), 2, tree=TreeRequest(4, 2)))
        _run(core, CloseSequence(0), opened, Decode(0, length, 4, num_draft_tokens=2))
        _run(core, CloseSequence(0))
    core.kv_cache.pool.clear_cache()


def warm_up_head(core: HeadCore) -> None:
    """Drafts in every mode; leaves no sequence behind. Raises InternalError when there are none."""
    model = core.model
    token_ids = tuple(token_id % model.vocab_size for token_id in _PROMPT)[: model.max_context_tokens // 2]
    values = torch.zeros(len(token_ids) - 1, core.feature_width)
    features = encode_features(values, 0)
    for sampling in _SAMPLINGS:
        core.submit(OpenSequence(0, token_ids, sampling))
        core.submit(Propose(0, len(token_ids), (), min(2, core.limits.max_draft_tokens), features))
        if not any(isinstance(event, Proposal) and event.draft_token_ids for event in core.step()):
            raise InternalError("the draft head cannot draft; the log says why")
        core.submit(CloseSequence(0))


def _run(core: EngineCore, *commands: Command) -> None:
    for command in commands:
        core.submit(command)
    while core.has_work:
        for event in core.step():
            if isinstance(event, SequenceError) and event.code is SequenceErrorCode.INTERNAL:
                raise InternalError(f"the engine cannot compute its first steps; its log says why: {event.message}")

"""Makes the engine that a replica runs, by the configuration: a target, a draft model, a head apart from its target."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from pilotfish.config import DEFAULT_KV_CACHE_TOKENS, Config, EngineConfig
from pilotfish.config.shipped_heads import head_folder
from pilotfish.drafter_registry import DRAFTERS, Needs, room
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import FeatureStore, build_feature_store, feature_bytes, kept_layers
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.engine.drafting.in_target_lookup import InTargetLookup
from pilotfish.engine.process.calibration import calibrate
from pilotfish.engine.process.cores import usable_cores
from pilotfish.engine.process.gpu import record_graphs, with_kv_cache_tokens
from pilotfish.engine.process.learning import HeadDrafter, learn_with
from pilotfish.engine.process.precision import precision_of
from pilotfish.engine.process.warm_up import warm_up, warm_up_head
from pilotfish.engine.process.weight_format import (
    MemoryNeeds,
    available_bytes,
    formats_of,
    lossless_share,
    with_weight_format,
)
from pilotfish.engine.process.wire import Role
from pilotfish.errors import ConfigError
from pilotfish.models.decoder import Decoder
from pilotfish.models.device import DTYPES, enter_device, resolve_device
from pilotfish.models.factory import BuiltDecoder, build_decoder
from pilotfish.models.feature_head import FeatureHead
from pilotfish.models.loading import LoadedModel, load_model
from pilotfish.models.own_cache.decoder import OwnCacheDecoder
from pilotfish.models.store.folder import read_metadata, text_fields
from pilotfish.models.store.head_config import HeadTarget
from pilotfish.models.store.pull import pull_model
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.parallel.build import build_parallel_decoder
from pilotfish.parallel.ranks import Meeting, meet
from pilotfish.speculation.lookup.index import lookup_of
from pilotfish.types import BLOCK_SIZE, ModelInfo

Watch = Callable[[InTargetDrafter], InTargetDrafter]
"""Puts something around a drafter."""


def build_engine(config: Config, role: Role, *, rank_folder: Path | None = None, watch: Watch | None = None) -> Engine:
    """The engine of the configuration's target or draft section, warmed up. Raises PilotfishError kinds of loading.

    rank_folder: of a target in several ranks, see pilotfish.parallel.ranks.meet. watch: for the drafter in a target.
    """
    if role == "draft" and DRAFTERS[config.draft.drafter].needs is Needs.FEATURES:
        return _head_engine(config)
    return _model_engine(config, role, rank_folder, watch)


def build_in_target_drafter(config: Config, loaded: LoadedModel, decoder: Decoder) -> InTargetDrafter | None:
    """What drafts in the target, on top of the decoder that was built from loaded: a head, a lookup before it, or one
    of them; None for `none`.

    Raises: ModelNotFoundError, ModelError and UnsupportedModelError for a head that is missing, broken or another
    target's.
    """
    wanted, drafter = config.target.drafter, None
    if wanted.proposer != "none":  # Config has made `auto` concrete
        build = room(wanted.proposer, "draft").build_in_target
        drafter = build(wanted, loaded, decoder, top_m=config.draft.top_m)
    if wanted.lookup == "none":
        return drafter
    name = wanted.lookup if drafter is None else drafter.name
    make_index = lookup_of(wanted.lookup)(config.draft)
    return InTargetLookup(name, make_index, drafter, config.draft.lookup_min_accepted_tokens)


def _model_engine(config: Config, role: Role, rank_folder: Path | None, watch: Watch | None) -> EngineCore:
    has_ranks = role == "target" and config.target.tensor_parallel_size > 1
    with meet(rank_folder) if has_ranks else nullcontext() as meeting:
        config = _with_weight_format(config, role)
        loaded, built = _decoder(config, role, meeting)
    engine = (config.target if role == "target" else config.draft).engine
    decoder = built.decoder
    if isinstance(decoder, OwnCacheDecoder):
        engine = _for_own_cache(engine, decoder, role)
    drafter = build_in_target_drafter(config, loaded, decoder) if role == "target" else None
    own_drafter = drafter.other if isinstance(drafter, InTargetLookup) else drafter
    if drafter is not None and watch is not None:
        drafter = watch(drafter)
    features = build_feature_store(config, loaded, decoder) if role == "target" else None
    engine = with_kv_cache_tokens(engine, decoder, _bytes_beside(loaded, decoder, drafter, features))
    info = ModelInfo(
        model_id=loaded.model_id,
        tokenizer_fingerprint=loaded.fingerprint,
        vocab_size=decoder.vocab_size,
        max_context_tokens=decoder.max_context_tokens,
        dtype=precision_of(engine, decoder),
        deterministic=built.deterministic,
        proposer="model" if role == "draft" else "" if drafter is None else drafter.name,
        tokenizer_path=str(loaded.folder),
        feature_layers=() if features is None else features.layers,
        max_draft_depth=(drafter.max_draft_tokens or 0) if drafter is not None else 0,
    )
    grammars = Grammars.of_model(loaded.folder, decoder.vocab_size)
    drafts_grammar = role == "target" and config.target.drafter.grammar
    core = EngineCore(
        decoder,
        engine,
        info,
        top_m=config.draft.top_m,
        drafter=drafter,
        features=features,
        grammars=grammars,
        forced_tokens=room("grammar", "draft").GrammarDrafter() if drafts_grammar else None,
    )
    record_graphs(decoder)
    warm_up(core)
    if role == "target":
        core.begin_with(calibrate(core, engine.max_batch_tokens))
        if own_drafter is not None and config.draft.learning.enabled and config.learns_in_target:
            head = cast("HeadDrafter", own_drafter).head
            learn_with(config, core, head, own_drafter.name, HeadTarget.of_model(loaded))
    return core


def _for_own_cache(engine: EngineConfig, decoder: OwnCacheDecoder, role: Role) -> EngineConfig:
    """The configuration for a decoder whose sequences share no blocks. Raises ConfigError for a drafter whose state
    cannot be cut back."""
    if role == "draft" and not decoder.is_cuttable:
        raise ConfigError(
            "draft.model keeps a state that cannot be cut back, as every proposal has to be: take another one, or a "
            "draft.proposer that needs none (docs/models.md)"
        )
    return replace(engine, prefix_caching=False)


def _head_engine(config: Config) -> HeadCore:
    """Raises: ModelError kinds when the head or the target's folder cannot be had, or do not belong together;
    ConfigError."""
    draft, cache_dir = config.draft, Path(config.cache_dir)
    if draft.engine.quantization not in ("none", "auto"):
        raise ConfigError("draft.engine.quantization does not apply to a head: set it to none")
    device = _enter(draft.engine)
    folder, target_folder = head_folder(draft.head), pull_model(draft.model, cache_dir)
    metadata = read_metadata(target_folder)
    engine = replace(
        draft.engine,
        device=str(device),
        num_threads=_num_threads(draft.engine),
        kv_cache_tokens=draft.engine.kv_cache_tokens or DEFAULT_KV_CACHE_TOKENS,
        max_context_tokens=draft.engine.max_context_tokens or metadata.max_context_tokens,
    )
    head: FeatureHead = room(draft.proposer, "draft").build_standalone(folder, target_folder, engine, cache_dir)
    model = ModelInfo(
        model_id=folder.name,
        tokenizer_fingerprint=tokenizer_fingerprint(target_folder),
        vocab_size=metadata.vocab_size,
        max_context_tokens=engine.max_context_tokens,
        dtype=engine.dtype,
        deterministic=engine.deterministic,
        proposer=draft.proposer,
        tokenizer_path=str(target_folder),
        feature_layers=head.feature_layers,
        takes_int8_features=True,
        max_draft_depth=head.max_draft_tokens or 0,
    )
    grammars = Grammars.of_model(target_folder, model.vocab_size)
    core = HeadCore(head, engine, model, top_m=draft.top_m, grammars=grammars)
    warm_up_head(core)
    if draft.learning.enabled and not config.learns_in_target:
        learn_with(config, core, head, draft.proposer, HeadTarget.of_folder(target_folder))
    return core


def _decoder(config: Config, role: Role, meeting: Meeting | None) -> tuple[LoadedModel, BuiltDecoder]:
    """The model and what runs it: in this process, or over the ranks of a target."""
    service = config.target if role == "target" else config.draft
    engine, num_threads = service.engine, _num_threads(service.engine)
    if meeting is not None:
        threads = engine.num_threads or max(1, num_threads // config.target.tensor_parallel_size)
        return build_parallel_decoder(config, threads, meeting)
    device = _enter(engine)
    # What is to be rounded is loaded to the CPU, so that a GPU never holds it whole.
    loading_device = torch.device("cpu") if engine.quantization in ("int8", "fp8") else device
    cache_dir = Path(config.cache_dir)
    loaded = load_model(
        service.model,
        cache_dir=cache_dir,
        adapter=_adapter(config, role),
        dtype=DTYPES[engine.dtype],
        device=loading_device,
    )
    return loaded, build_decoder(loaded, engine, num_threads=num_threads, cache_dir=cache_dir, device=device)


def _adapter(config: Config, role: Role) -> str:
    """What is merged into the model of that role."""
    return config.target.lora if role == "target" else ""


def _with_weight_format(config: Config, role: Role) -> Config:
    """The configuration with `quantization: auto` decided for the section of that role."""
    service = config.target if role == "target" else config.draft
    engine = service.engine
    if engine.quantization != "auto":
        return config
    num_ranks = config.target.tensor_parallel_size if role == "target" else 1
    wanted = config.target.drafter
    drafter = head_folder(wanted.model) if role == "target" and wanted.model else None
    folder = pull_model(service.model, Path(config.cache_dir), adapter=_adapter(config, role))
    num_layers = text_fields(read_metadata(folder).config).get("num_hidden_layers", 0)
    kept = kept_layers(config, num_layers) if role == "target" else ()
    needs = MemoryNeeds.of_model(folder, engine, num_ranks=num_ranks, drafter=drafter, num_feature_layers=len(kept))
    device = resolve_device(engine.device)
    formats = formats_of(device, engine, num_ranks)
    free_bytes = available_bytes(device, engine, num_ranks)
    if "lossless" in formats and needs.num_bytes("none") > free_bytes:
        needs = replace(needs, lossless_share=lossless_share(folder))
    engine = with_weight_format(engine, needs, free_bytes, formats)
    if role == "target":
        return replace(config, target=replace(config.target, engine=engine))
    return replace(config, draft=replace(config.draft, engine=engine))


def _enter(engine: EngineConfig) -> torch.device:
    """The device to compute on, from now on this thread's."""
    torch.set_num_threads(_num_threads(engine))
    device = resolve_device(engine.device)
    enter_device(device)
    return device


def _bytes_beside(
    loaded: LoadedModel, decoder: Decoder, drafter: InTargetDrafter | None, features: FeatureStore | None
) -> int:
    """What drafter and features keep beside each block of the decoder's cache."""
    drafter_bytes = 0 if drafter is None else drafter.allocate(2) // 2
    if features is None:
        return drafter_bytes
    hidden_size: int = loaded.model.config.get_text_config().hidden_size
    return drafter_bytes + feature_bytes(BLOCK_SIZE, len(features.layers), hidden_size, decoder.dtype)


def _num_threads(engine: EngineConfig) -> int:
    """Threads to compute with: the configured number, or the cores this process may use."""
    return engine.num_threads or usable_cores()

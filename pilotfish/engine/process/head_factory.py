"""Loads a draft head and builds the engine core of a replica that runs it apart from its target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from pilotfish.config import DEFAULT_KV_CACHE_TOKENS, Config
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.engine.process.factory import DTYPES, num_threads
from pilotfish.engine.process.head_warm_up import warm_up_head
from pilotfish.errors import ConfigError
from pilotfish.features import FeatureFormat
from pilotfish.models.device import enter_device, resolve_device
from pilotfish.models.eagle3.standalone import build_standalone_eagle3, load_standalone_eagle3
from pilotfish.models.store.folder import read_metadata
from pilotfish.models.store.pull import pull_model
from pilotfish.models.store.shipped import head_folder
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.types import ModelInfo

_FORMATS = {"bf16": FeatureFormat.BF16, "fp8": FeatureFormat.FP8}


def build_head_engine(config: Config) -> HeadCore:
    """The engine of the proposer `eagle3`, from the configuration's draft section.

    Raises: ModelError kinds when the head or the target's folder cannot be had, or do not belong together;
    ConfigError.
    """
    draft, engine = config.draft, config.draft.engine
    if engine.quantization != "none":
        raise ConfigError("draft.engine.quantization does not apply to a head: set it to none")
    engine = replace(engine, kv_cache_tokens=engine.kv_cache_tokens or DEFAULT_KV_CACHE_TOKENS)
    device = resolve_device(engine.device)
    enter_device(device)
    torch.set_num_threads(num_threads(engine))
    folder = head_folder(draft.head)
    target_folder = pull_model(draft.model, Path(config.cache_dir))
    metadata = read_metadata(target_folder)
    head = load_standalone_eagle3(folder, target_folder, dtype=DTYPES[engine.dtype])
    model = ModelInfo(
        model_id=folder.name,
        tokenizer_fingerprint=tokenizer_fingerprint(target_folder),
        vocab_size=metadata.vocab_size,
        max_context_tokens=engine.max_context_tokens or metadata.max_context_tokens,
        dtype=engine.dtype,
        deterministic=engine.deterministic,
        proposer="eagle3",
        tokenizer_path=str(target_folder),
        feature_layers=head.config.feature_layers,
        feature_format=_FORMATS[draft.feature_format],
    )
    runtime = build_standalone_eagle3(
        head,
        use_kernels=engine.compile,
        device=str(device),
        num_threads=num_threads(engine),
        max_context_tokens=model.max_context_tokens,
        cache_dir=Path(config.cache_dir),
        deterministic=engine.deterministic,
    )
    grammars = Grammars.of_model(target_folder, model.vocab_size)
    core = HeadCore(runtime, engine, model, top_m=draft.top_m, grammars=grammars)
    warm_up_head(core)
    return core

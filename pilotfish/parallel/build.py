"""Makes a target's decoder over several ranks, from the configuration."""

from __future__ import annotations

from dataclasses import replace

import torch

from pilotfish.config import Config, Quantization
from pilotfish.errors import ConfigError
from pilotfish.models.device import DTYPES, resolve_device
from pilotfish.models.factory import BuiltDecoder, probed
from pilotfish.models.loading import LoadedModel, require_supported
from pilotfish.models.store.catalogue import merged_id
from pilotfish.models.store.folder import read_metadata
from pilotfish.models.store.pull import pull_model
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.parallel.messages import Setup
from pilotfish.parallel.ranks import Meeting, start_ranks
from pilotfish.parallel.sharded_model import empty_model
from pilotfish.parallel.sizes import ModelSizes

SETTING = "target.tensor_parallel_size"


def build_parallel_decoder(config: Config, num_threads: int, meeting: Meeting) -> tuple[LoadedModel, BuiltDecoder]:
    """The target's decoder over its ranks. The model comes without weights: each rank has a part of them.

    num_threads: each rank's.
    Raises: ConfigError for a number of ranks that the model or this machine does not allow, before anything starts;
    then the kinds of loading.
    """
    engine = config.target.engine
    device = resolve_device("auto").type if engine.device == "auto" else engine.device
    loaded = _described(config)
    if meeting.is_ours:
        _require_gpus(device, config.target.tensor_parallel_size)
    _require_quantization(engine.quantization, device)
    setup = Setup(
        num_ranks=config.target.tensor_parallel_size,
        folder=str(loaded.folder),
        engine=replace(
            engine,
            device=device,
            num_threads=num_threads,
            # As in one process, see models.factory.build_decoder: not attempted on a GPU.
            deterministic=engine.deterministic and not _is_cuda(device),
            max_context_tokens=engine.max_context_tokens or loaded.max_context_tokens,
        ),
        log_level=config.log_level,
        log_format=config.telemetry.log_format,
    )
    return loaded, probed(start_ranks(setup, meeting), deterministic=setup.engine.deterministic)


def _described(config: Config) -> LoadedModel:
    """The target's model without weights. Raises ConfigError, UnsupportedModelError where it cannot run so."""
    target = config.target
    folder = pull_model(target.model, config.cache_dir, adapter=target.lora)
    metadata = read_metadata(folder)
    name = merged_id(target.model, target.lora)
    path = require_supported(metadata, folder)
    path.require_paged(f"{SETTING} {target.tensor_parallel_size}")
    ModelSizes.of_config(metadata.config).require(target.tensor_parallel_size, model=name, setting=SETTING)
    if target.engine.max_context_tokens > metadata.max_context_tokens:
        raise ConfigError(
            f"max_context_tokens is {target.engine.max_context_tokens}; {name} was trained for "
            f"{metadata.max_context_tokens}"
        )
    return LoadedModel(
        model=empty_model(folder, DTYPES[target.engine.dtype]),
        folder=folder,
        model_id=name,
        vocab_size=metadata.vocab_size,
        max_context_tokens=metadata.max_context_tokens,
        fingerprint=tokenizer_fingerprint(folder),
        path=path,
    )


def _is_cuda(device: str) -> bool:
    return torch.device(device).type == "cuda"


def _require_gpus(device: str, num_ranks: int) -> None:
    """Raise ConfigError where this machine has fewer GPUs than ranks."""
    if not _is_cuda(device):
        return
    if torch.device(device).index:
        raise ConfigError(
            f"target.engine.device is {device}, which is one GPU, and {SETTING} is {num_ranks}: set it to cuda, and "
            "CUDA_VISIBLE_DEVICES to the GPUs that the ranks may take"
        )
    if (found := torch.cuda.device_count()) < num_ranks:
        raise ConfigError(
            f"{SETTING} is {num_ranks}, and this machine has {found} GPU{'' if found == 1 else 's'}: "
            "each rank needs one of its own"
        )


def _require_quantization(quantization: Quantization, device: str) -> None:
    """Raise ConfigError for weights that ranks cannot compute with on this device."""
    if quantization in ("int8", "fp8") and not _is_cuda(device):
        raise ConfigError(
            f"target.engine.quantization {quantization} on the CPU needs the native kernels, which run in one process: "
            f"set {SETTING} to 1, or quantization to none"
        )

"""Makes the runtime that suits a head's weights: beside its target's decoder, or apart from it.

Apart from its target a head needs the target's embeddings and no more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from pilotfish.config import EngineConfig
from pilotfish.config.shipped_heads import head_folder
from pilotfish.config.target import InTargetDrafterConfig
from pilotfish.drafters.eagle3.checkpoint import load_eagle3
from pilotfish.drafters.eagle3.config import Eagle3Config
from pilotfish.drafters.eagle3.in_target import Eagle3Drafter
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.drafters.eagle3.native_head import NativeEagle3Head, NativeThreads
from pilotfish.drafters.eagle3.torch_head import TorchEagle3Head
from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.models.attention.paged import AttentionShape
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.device import DTYPES
from pilotfish.models.feature_head import FeatureHead
from pilotfish.models.gpu_factory import choose_attention, graph_plan
from pilotfish.models.loading import LoadedModel
from pilotfish.models.native.build import NativeKernelsUnavailableError
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.models.store.head_config import HeadTarget
from pilotfish.parallel.decoder import ParallelDecoder

logger = logging.getLogger(__name__)

_EMBEDDINGS = "embed_tokens.weight"
"""What the name ends with in the target's safetensors."""


def build_in_target(
    wanted: InTargetDrafterConfig, loaded: LoadedModel, decoder: Decoder, *, top_m: int
) -> Eagle3Drafter:
    """The head that is wanted on top of the decoder that was built from loaded; the decoder captures its layers.

    Raises: as load_eagle3 does, and ModelError for another target's head.
    """
    folder, target = head_folder(wanted.model), HeadTarget.of_model(loaded)
    head = load_eagle3(folder, num_target_layers=target.num_layers, dtype=decoder.dtype)
    head.config.check_target(target, source=str(folder))
    decoder.capture(head.config.feature_layers)
    return Eagle3Drafter(decoder, build_eagle3_head(decoder, head), top_m=top_m)


def build_eagle3_head(decoder: Decoder, module: Eagle3Head) -> FeatureHead:
    """A head on top of a decoder. Takes over the module. Raises UnsupportedModelError."""
    if isinstance(decoder, NativeDecoder):
        return NativeEagle3Head(decoder, module.to(decoder.dtype))
    if isinstance(decoder, TransformersDecoder | ParallelDecoder):
        module = module.to(device=decoder.device, dtype=decoder.dtype)
        return TorchEagle3Head(
            module,
            module.embed_tokens or decoder.input_embeddings,
            deterministic=False,
            row_attention=decoder.row_attention,
            graphs=decoder.graph_plan,
        )
    raise UnsupportedModelError(f"EAGLE-3 heads do not run on the {decoder.name} decoder")


def prepare_version(head: NativeEagle3Head | TorchEagle3Head, folder: Path, target: HeadTarget) -> Callable[[], None]:
    """Make a head ready to go on with the weights in a folder, on any thread; what is returned has it do so, between
    two forwards.

    Raises: as load_eagle3 does; ModelError for another target's head; UnsupportedModelError for one of other sizes.
    """
    module = load_eagle3(folder, num_target_layers=target.num_layers, dtype=head.dtype)
    module.config.check_target(target, source=str(folder))
    ours, theirs = (_sizes(each) for each in (head.config, module.config))
    if differing := [name for name, value in theirs.items() if value != ours[name]]:
        raise UnsupportedModelError(f"the head in {folder} has another {differing[0]} than the one that drafts")
    return head.prepare(module)


def _sizes(config: Eagle3Config) -> dict[str, Any]:
    """All but the target's name, which says nothing of the weights."""
    return asdict(replace(config, target_model="", tokenizer_fingerprint=""))


def build_standalone(folder: Path, target_folder: Path, engine: EngineConfig, cache_dir: Path) -> FeatureHead:
    """The head in a folder, apart from its target, whose model folder is target_folder: on the native kernels where
    they can run it.

    engine: names a device, threads and the context's tokens. Raises: ModelError kinds as load_eagle3 does, and when the
    head does not fit the target; ConfigError for attention or kernels that cannot be had.
    """
    head = _with_embeddings(folder, target_folder, DTYPES[engine.dtype])
    device, max_context_tokens = torch.device(engine.device), engine.max_context_tokens
    if engine.compile and device.type == "cpu" and head.fc.weight.dtype is torch.bfloat16:
        try:
            threads = NativeThreads(
                num_threads=engine.num_threads,
                max_context_tokens=max_context_tokens,
                cache_dir=cache_dir,
                kernels=engine.kernels,
            )
            native = NativeEagle3Head(threads, head)
        except (NativeKernelsUnavailableError, UnsupportedModelError) as error:
            logger.warning("native kernels are not used for the head: %s", error)
        else:
            torch.set_num_threads(1)  # the kernels bring their own; torch's would spin on the same cores
            return native
    shape = AttentionShape(head.config.num_key_value_heads, head.config.head_dim, 1.0)
    group_size = head.config.num_attention_heads // head.config.num_key_value_heads
    row_attention = None
    if device.type == "cuda":
        row_attention = choose_attention(engine.attention, [shape], group_size, head.fc.weight.dtype, device)
    embeddings = head.embed_tokens
    assert embeddings is not None, "_with_embeddings gives them"
    return TorchEagle3Head(
        head.to(device),
        embeddings,
        deterministic=engine.deterministic,
        row_attention=row_attention,
        graphs=None if row_attention is None else graph_plan(engine, max_context_tokens),
    )


def _with_embeddings(folder: Path, target_folder: Path, dtype: torch.dtype) -> Eagle3Head:
    """The head in a folder, with the embeddings of its target, whose model folder is target_folder.

    See build_standalone.
    """
    target = HeadTarget.of_folder(target_folder)
    head = load_eagle3(folder, num_target_layers=target.num_layers, dtype=dtype)
    head.config.check_target(target, source=str(folder))
    if head.embed_tokens is None:
        weight = _embeddings(target_folder, (target.vocab_size, target.hidden_size))
        head.embed_tokens = nn.Embedding(target.vocab_size, target.hidden_size, _weight=weight.to(dtype), _freeze=True)
    return head


def _embeddings(folder: Path, shape: tuple[int, int]) -> Tensor:
    """Read from the model folder without the other weights. Raises ModelError kinds."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as tensors:
                name = next((name for name in tensors.keys() if name.endswith(_EMBEDDINGS)), None)  # noqa: SIM118
                if name is None:
                    continue
                weight: Tensor = tensors.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        if tuple(weight.shape) != shape:
            raise ModelError(f"{path}: {name} has the shape {list(weight.shape)}; config.json asks for {list(shape)}")
        return weight
    raise UnsupportedModelError(f"{folder} has no tensor whose name ends with {_EMBEDDINGS}")

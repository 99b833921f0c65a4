"""EAGLE-3 heads on the native CPU kernels: on top of a native decoder, or alone."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from pilotfish.config import CpuKernels
from pilotfish.drafters.eagle3.config import Eagle3Config
from pilotfish.drafters.eagle3.module import Eagle3Head, Rotary
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.feature_head import FIRST_KEY, HeadOutput, HeadStep
from pilotfish.models.native.build import find_kernels, load_kernels
from pilotfish.models.native.decoder import NativeDecoder, NativePool
from pilotfish.models.native.layout import (
    GROUP,
    LANES,
    ModelStruct,
    Packer,
    StepStruct,
    WeightsStruct,
    layer_struct,
    whole_groups,
    wrong_size,
)
from pilotfish.models.native.quantise import BLOCK_INPUTS
from pilotfish.models.native.step import LogitsBuffer, NativeStepRows


class HeadStruct(ctypes.Structure):
    _fields_ = [
        ("model", ModelStruct),
        ("hidden_norm", ctypes.c_void_p),
        ("fusion", WeightsStruct),
        ("fused_width", ctypes.c_int64),
    ]


class HeadStepStruct(ctypes.Structure):
    _fields_ = [
        ("step", StepStruct),
        ("states", ctypes.c_void_p),
        ("are_features", ctypes.c_int64),
        ("hidden", ctypes.c_void_p),
    ]


class NativeThreads:
    """Lends a head that lives apart from its target the kernels' threads, as a decoder does; the head has to bring its
    embeddings."""

    def __init__(
        self, *, num_threads: int, max_context_tokens: int, cache_dir: Path, kernels: CpuKernels = "auto"
    ) -> None:
        """Raises NativeKernelsUnavailableError; ConfigError if the processor lacks these kernels."""
        self.kernels = load_kernels(find_kernels(cache_dir, kernels))
        self.max_context_tokens = max_context_tokens
        no_layers = ModelStruct()
        self.engine = self.kernels.pilotfish_create(ctypes.addressof(no_layers), num_threads)  # copies the struct
        weakref.finalize(self, self.kernels.pilotfish_destroy, self.engine)


class _PackedHead:
    """A module's weights in the kernels' layout, and the kernels' head over them."""

    def __init__(self, decoder: NativeDecoder | NativeThreads, module: Eagle3Head, embeddings: Tensor | None) -> None:
        """embeddings: [V, H]; None: the decoder's."""
        self._decoder = decoder  # it must outlive the head: threads and embeddings are its own
        self._embeddings = embeddings
        self._packer = packer = Packer()  # owns what the structs point to, as does the layer
        config = module.config
        rotary = Rotary(config, torch.arange(decoder.max_context_tokens))
        half = config.head_dim // 2
        self._layer = layer_struct(packer, module.midlayer, quantization="int8", first_key=FIRST_KEY)
        head = whole_groups(module.lm_head.weight)
        self.model = model = ModelStruct(
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            intermediate=config.intermediate_size,
            vocab=head.shape[0],
            num_layers=1,
            max_positions=decoder.max_context_tokens,
            eps=config.rms_norm_eps,
            scale=config.head_dim**-0.5,
            embedding=None if embeddings is None else embeddings.data_ptr(),
            final_norm=packer.keep(module.norm.weight),
            head=packer.pack([head], quantization="int8"),
            cosine=packer.keep(rotary.cos[:, 0, :half]),
            sine=packer.keep(rotary.sin[:, 0, :half]),
            layers=ctypes.addressof(self._layer),
        )
        self._struct = HeadStruct(
            model=model,
            hidden_norm=packer.keep(module.midlayer.hidden_norm.weight),
            fusion=packer.pack([module.fc.weight], quantization="int8"),
            fused_width=module.fc.in_features,
        )
        kernels = decoder.kernels
        self._engine = kernels.pilotfish_create_head(decoder.engine, ctypes.addressof(self._struct))
        weakref.finalize(self, kernels.pilotfish_destroy_head, self._engine)

    def use(self, pool: NativePool) -> None:
        """Read and write keys and values there."""
        keys, values = pool.tensor[0]
        self._decoder.kernels.pilotfish_set_head_pool(self._engine, keys.data_ptr(), values.data_ptr())

    def forward(self, step: HeadStepStruct) -> None:
        self._decoder.kernels.pilotfish_forward_head(self._engine, ctypes.addressof(step))


class NativeEagle3Head:
    """See FeatureHead. Copies the weights of a bfloat16 module as int8: what it drafts is verified, and half the bytes
    take less time. Raises UnsupportedModelError for sizes that the kernels cannot cut."""

    def __init__(self, decoder: NativeDecoder | NativeThreads, module: Eagle3Head) -> None:
        """module: a head's; over NativeThreads it has embeddings of its own."""
        _check_sizes(module.config)
        self._decoder = decoder
        self._embeddings = _kept_embeddings(module)
        self._packed = _PackedHead(decoder, module, self._embeddings)
        self.config = module.config
        self.draft_token_ids = module.target_token_ids
        self.feature_layers: tuple[int, ...] = module.config.feature_layers
        self.feature_width = module.fc.in_features
        self.reads_text = True
        self.max_draft_tokens: int | None = None
        self.dtype = torch.bfloat16
        self.device = torch.device("cpu")
        self._logits = LogitsBuffer(self._packed.model.vocab)
        self._pool: NativePool | None = None

    def allocate(self, num_blocks: int) -> NativePool:
        model = self._packed.model
        pool = self._pool = NativePool(num_blocks, 1, model.kv_heads, model.head_dim)
        self._packed.use(pool)
        return pool

    def prepare(self, module: Eagle3Head) -> Callable[[], None]:
        """Pack other weights of the same sizes, on any thread; what is returned goes on with them, and with their draft
        vocabulary, between two forwards."""
        embeddings = self._embeddings if module.embed_tokens is None else _kept_embeddings(module)
        packed = _PackedHead(self._decoder, module, embeddings)

        def exchange() -> None:
            if self._pool is not None:
                packed.use(self._pool)
            self._embeddings = embeddings
            self._packed = packed
            self.draft_token_ids = module.target_token_ids

        return exchange

    def forward(self, step: HeadStep) -> HeadOutput:
        if self._pool is None:
            raise RuntimeError("allocate a KV pool before the first forward")
        states, hidden_size = step.states.contiguous(), self.config.hidden_size
        if states.dtype is not torch.bfloat16 or states.shape[1] not in (self.feature_width, hidden_size):
            raise ValueError(f"states are {states.dtype} {list(states.shape)}")
        hidden = torch.empty(len(step.logit_rows), hidden_size, dtype=torch.bfloat16)
        logits = self._logits.of(len(step.logit_rows))
        rows = NativeStepRows(step)
        struct = HeadStepStruct(
            step=rows.struct(logits.data_ptr()),
            states=states.data_ptr(),
            are_features=states.shape[1] == self.feature_width,
            hidden=hidden.data_ptr(),
        )
        self._packed.forward(struct)
        return HeadOutput(logits[:, : len(self.draft_token_ids)], hidden)


def _kept_embeddings(module: Eagle3Head) -> Tensor | None:
    """A copy of a module's own embeddings."""
    return None if module.embed_tokens is None else module.embed_tokens.weight.detach().clone().contiguous()


def _check_sizes(config: Eagle3Config) -> None:
    qkv = (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim
    sizes = {
        "hidden_size": (config.hidden_size, GROUP),
        "head_dim": (config.head_dim, LANES),
        "the width of q, k and v": (qkv, GROUP),
        "intermediate_size": (config.intermediate_size, BLOCK_INPUTS),
        "the width of all query heads": (config.num_attention_heads * config.head_dim, BLOCK_INPUTS),
    }
    if (reason := wrong_size(sizes)) is not None:
        raise UnsupportedModelError(
            f"an EAGLE-3 head whose {reason}, does not run on the native kernels: set engine.compile to false"
        )

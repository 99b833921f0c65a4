"""A model's layers compiled with torch.compile: the small operations between matrix products run as few kernels.

Attention is not: it runs as it is between the compiled parts. All layers share a compilation; another one is made for a
single row and for another model.
"""

from __future__ import annotations

import functools
import logging
import textwrap
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel

from pilotfish.models.decoder_transformers import ATTENTION_NAME

logger = logging.getLogger(__name__)

_MAX_VARIANTS = 32
"""Variants of one function. dynamo's 8 are few for models of a kind: each needs one for a single row, one for more, and
one for row counts that happen to be another of its sizes; some have two kinds of layers, and int8 is padded to 32."""


def compile_layers(model: PreTrainedModel, *, falls_back: bool = True) -> Callable[[], None]:
    """Have the layers, norm and rotary embedding of a model compiled, each when it first runs; returns what undoes it.

    If that fails, this is logged and the whole model runs as it was; falls_back False: the error is raised.
    """
    _prepare_dynamo()
    body = model.get_decoder()
    parts: list[Any] = []
    for child in body.children():
        if isinstance(child, nn.ModuleList):
            parts.extend(child)
        elif not isinstance(child, nn.Embedding):
            parts.append(child)
    originals = [part.forward for part in parts]

    def undo() -> None:
        for part, original in zip(parts, originals, strict=True):
            part.forward = original

    def with_fallback(original: Callable[..., Any]) -> Callable[..., Any]:
        compiled = torch.compile(original, dynamic=True)

        def forward(*args: Any, **kwargs: Any) -> Any:
            try:
                return compiled(*args, **kwargs)
            except torch._dynamo.exc.TorchDynamoException as error:
                if not falls_back:
                    raise
                logger.warning("%s runs uncompiled: %s", type(body).__name__, textwrap.shorten(str(error), 300))
                undo()
                return original(*args, **kwargs)

        return forward

    for part, original in zip(parts, originals, strict=True):
        part.forward = with_fallback(original)
    return undo


def can_compile(device: torch.device) -> bool:
    """Compile and run a small function on the device; where that fails, say so in the log. Ask before a model is
    loaded: without a C compiler some errors come only when a kernel is launched."""
    try:
        compiled = torch.compile(lambda values: torch.relu(values * 2.0) + 1.0)
        compiled(torch.ones(8, device=device))
    except Exception as error:  # Triton's and the compilers' own, of any kind
        logger.warning("layers run uncompiled: nothing can be compiled here (%s)", textwrap.shorten(str(error), 300))
        return False
    return True


@functools.cache
def _prepare_dynamo() -> None:
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _MAX_VARIANTS)
    inductor = torch._inductor.config
    # The few kernels are compiled here: else a process for each core would be started for them, and stay.
    inductor.compile_threads = 1
    # Else fp8 products are not the library's: kernels for them are tried out for minutes, with the first step's sizes.
    inductor.max_autotune_gemm_backends = "ATEN"
    inductor.triton.autotune_pointwise = False
    # It works on objects that differ in every step, so that each step would be compiled.
    attention = AttentionInterface()[ATTENTION_NAME]
    AttentionInterface.register(ATTENTION_NAME, torch.compiler.disable(attention))  # type: ignore[no-untyped-call]

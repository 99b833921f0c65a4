"""Decides by its config.json alone which decoder computes a model, and refuses one that would be answered wrongly.

The model's twin says what is right, by transformers' own forward over whole texts. A decoder must agree in the steps
that a service takes (steps.py).

Legend: T tokens of a text, V vocabulary.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention.modules import unsupported
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder, check_rotary_scaling
from pilotfish.models.own_cache.decoder import OwnCacheDecoder
from pilotfish.models.own_cache.text_cache import Rows
from pilotfish.models.self_check.serving_path import ServingPath
from pilotfish.models.self_check.steps import LENGTHS, NUM_BLOCKS, Forward, Steps, steps_of
from pilotfish.models.self_check.twin import CONTEXT, NUM_TOKENS, twin_of

TOLERANCE, BFLOAT16_TOLERANCE = 3e-3, 0.25
"""Allowed deviation, over the logits' standard deviation. Right decoders were seen to differ by 0.0001 at most and
wrong ones by 0.004 at least, right ones in bfloat16 by 0.08 at most."""
_SEEDS = (1, 2)
_NUM_GENERATED = 3

_OTHER_WITH_CACHE = "transformers gives it other logits with its cache than over the whole text"

FaultOf = Callable[[PreTrainedModel, Steps, int], str | None]
"""A twin, which may be changed, its steps and its seed to what a decoder of it does wrong; None: nothing."""


@contextmanager
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other at every narrow product take twenty times as long, on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def serving_path_of(config: PreTrainedConfig, kind: type[PreTrainedModel] | None = None) -> ServingPath:
    """The first path that computes a model of this config as transformers does. kind: see twin_of.

    Raises UnsupportedModelError, which names the architecture, where none does.
    """
    paged = _fault(config, kind, _paged_fault)
    if paged is None:
        return ServingPath()
    for rows in (Rows.ANY, Rows.SINGLE):
        own = _fault(config, kind, partial(_own_cache_fault, config, kind, rows))
        if own is None:
            return ServingPath(rows, paged)
    raise unsupported(config, own if own == paged else f"{paged}, and {own}")


@_one_thread()
def bfloat16_deviation(config: PreTrainedConfig, take_over: Callable[[PreTrainedModel], Decoder]) -> float:
    """Deviation of another decoder, which takes over the twin in bfloat16, from the twin's own logits in float32 by the
    same weights, in standard deviations of these."""
    twin = twin_of(config, _SEEDS[0]).bfloat16().float()
    steps = list(steps_of(_forward_of(twin), _SEEDS[0]))
    decoder = take_over(twin.bfloat16())
    decoder.allocate(NUM_BLOCKS)
    return _deviation(decoder, steps)


def _fault(config: PreTrainedConfig, kind: type[PreTrainedModel] | None, fault_of: FaultOf) -> str | None:
    """What a decoder of the config's twin does wrong; None: it is right with one of the seeds."""
    fault: str | None = None
    for seed in _SEEDS:
        # Rounding decides between experts whose scores are all but equal: it may do so in one twin, not in each.
        try:
            check_rotary_scaling(config)
            twin = twin_of(config, seed, kind)
            steps = list(steps_of(_forward_of(twin), seed))
            if not all(right.isfinite().all() for _, right in steps):
                raise ValueError("its logits are not finite")
        except UnsupportedModelError:
            raise
        except Exception as error:
            raise unsupported(
                config, f"transformers cannot compute a small one to compare with ({_short(error)})"
            ) from error
        fault = fault_of(twin, steps, seed)
        if fault is None:
            return None
    return fault


def _paged_fault(twin: PreTrainedModel, steps: Steps, seed: int) -> str | None:
    try:
        decoder = TransformersDecoder(twin, deterministic=False, max_context_tokens=CONTEXT)
        decoder.allocate(NUM_BLOCKS)
        deviation = _deviation(decoder, steps)
    except UnsupportedModelError as error:
        return error.reason
    except Exception as error:
        return f"it does not run on a paged KV cache ({_short(error)})"
    if not deviation < TOLERANCE:
        return f"on a paged KV cache its logits differ by {deviation:.2g} of their standard deviation"
    try:
        return None if _cache_deviation(twin, seed) < TOLERANCE else _OTHER_WITH_CACHE
    except Exception as error:
        return f"transformers cannot compute it with its cache ({_short(error)})"


def _own_cache_fault(
    config: PreTrainedConfig,
    kind: type[PreTrainedModel] | None,
    rows: Rows,
    _: PreTrainedModel,
    steps: Steps,
    seed: int,
) -> str | None:
    try:
        twin = twin_of(config, seed, kind, attention=None)  # what a model is loaded with
        decoder = OwnCacheDecoder(twin, rows=rows, max_context_tokens=CONTEXT, max_texts=2)
        decoder.allocate(NUM_BLOCKS)
        deviation = _deviation(decoder, steps)
        if not deviation < TOLERANCE:
            return f"with transformers' own cache they differ by {deviation:.2g} from those over the whole text"
        return None if _generate_deviation(twin, seed) < TOLERANCE else _OTHER_WITH_CACHE
    except Exception as error:
        return f"transformers cannot compute it with its cache ({_short(error)})"


def _forward_of(model: PreTrainedModel) -> Forward:
    @torch.inference_mode()
    def forward(token_ids: Sequence[int]) -> Tensor:
        logits: Tensor = model(input_ids=torch.tensor([list(token_ids)]), use_cache=False).logits[0]
        return logits

    return forward


@torch.inference_mode()
def _cache_deviation(model: PreTrainedModel, seed: int) -> float:
    """Deviation of the logits after a text of which all but the last token is in transformers' cache; 0 without one."""
    model.set_attn_implementation("eager")  # a decoder has taken it over
    generator = torch.Generator().manual_seed(seed)
    token_ids = torch.randint(0, NUM_TOKENS, (1, LENGTHS[0]), generator=generator)
    cache = getattr(model(input_ids=token_ids[:, :-1], use_cache=True), "past_key_values", None)
    if cache is None:
        return 0.0
    cached = model(input_ids=token_ids[:, -1:], past_key_values=cache, use_cache=True).logits[0, -1]
    return deviation_of(cached, model(input_ids=token_ids, use_cache=False).logits[0, -1])


def _generate_deviation(model: PreTrainedModel, seed: int) -> float:
    """Deviation of the logits by which transformers' `generate` goes on with a text."""
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(0, NUM_TOKENS, (1, LENGTHS[0]), generator=generator)
    greedy = GenerationConfig(
        max_new_tokens=_NUM_GENERATED,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    result: Any = model.generate(prompt, generation_config=greedy, attention_mask=torch.ones_like(prompt))
    right = _forward_of(model)(result.sequences[0, :-1].tolist())[-_NUM_GENERATED:]
    return deviation_of(torch.cat(result.logits), right)


def deviation_of(logits: Tensor, right: Tensor) -> float:
    """The largest difference of logits [..., V] from those that are right [..., V], in standard deviations of these;
    infinite where either are not finite."""
    deviation = ((logits.float() - right).abs().max() / right.std()).item()
    return math.inf if math.isnan(deviation) else deviation  # max() and comparisons would pass over NaN


def _deviation(decoder: Decoder, steps: Steps) -> float:
    """The largest of the steps, which are run in their order."""
    return max(deviation_of(decoder.forward(step), right) for step, right in steps)


def _short(error: Exception) -> str:
    return textwrap.shorten(f"{type(error).__name__}: {error}", 120)

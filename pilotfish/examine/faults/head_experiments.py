"""Experiments with an EAGLE-3 head: run otherwise than it is served, is it right more often?

The head reads the target's answers at once, as in training, and predicts each next token. Whoever gets better by a
change shows what the head was trained for. Shapes: T tokens, H hidden size, L layers of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from pilotfish.drafters.eagle3.module import Eagle3Head, Rotary
from pilotfish.examine.faults.suspicions import least_gain
from pilotfish.examine.result import Finding
from pilotfish.features import default_feature_layers
from pilotfish.models.feature_head import FIRST_KEY

_THETAS = (1e4, 1e5, 5e5, 1e6)
_ROPE = "the rotary embedding's base differs from training"


@dataclass(frozen=True)
class ComputedText:
    """A greedy answer, and what the target computed of it."""

    token_ids: Tensor
    """int64 [T], the prompt's among them."""
    prompt_len: int
    states: Tensor
    """[L + 1, T, H]: what enters each layer, and what leaves the last one."""
    choices: Tensor
    """int64 [T]: the target's argmax after each token. Of a target that is served rounded, what it would be without."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """Something that is done otherwise than it is served."""

    cause: str
    """If it helps."""
    what: str
    advice: str
    shift: int = 0
    """Added to the position whose features a token gets."""
    layers: tuple[int, ...] = ()
    """Empty: the head's own."""
    token_shift: int = 0
    """Added to the target's ids of the draft vocabulary."""
    rope_theta: float = 0.0
    """0: the head's own."""
    final_norm: Tensor | None = None
    """[H]"""
    norms_residual: bool = False


AS_SERVED = Experiment("", "", "")


@torch.inference_mode()
def read_texts(model: PreTrainedModel, texts: Sequence[tuple[Sequence[int], int]]) -> list[ComputedText]:
    """The target's states of (token ids, length of the prompt in them)."""
    read = []
    for token_ids, prompt_len in texts:
        ids = torch.tensor(token_ids, device=model.device)
        output = model(ids.unsqueeze(0), output_hidden_states=True, use_cache=False)
        read.append(ComputedText(ids, prompt_len, torch.cat(output.hidden_states), output.logits[0].argmax(-1)))
    return read


@torch.inference_mode()
def share_right(
    head: Eagle3Head,
    embed: Callable[[Tensor], Tensor],
    texts: Sequence[ComputedText],
    change: Experiment,
    *,
    of_target: bool = False,
) -> float:
    """Share of the answers' tokens, from the second on, that the head predicts as a draft's first.

    of_target: of the tokens that the target itself would choose there.
    """
    num_right = num_all = 0
    for text in texts:
        last = len(text.token_ids) - 1
        rows = torch.arange(FIRST_KEY, last, device=text.token_ids.device)  # those that predict a token
        predicted = _predictions(head, embed, text, rows, change)
        is_judged = rows >= text.prompt_len
        right = predicted == (text.choices[rows] if of_target else text.token_ids[rows + 1])
        num_right += int((right & is_judged).sum())
        num_all += int(is_judged.sum())
    return num_right / num_all if num_all else 0.0


def _predictions(
    head: Eagle3Head, embed: Callable[[Tensor], Tensor], text: ComputedText, rows: Tensor, change: Experiment
) -> Tensor:
    """int64 [rows], the target's ids."""
    before = (rows - 1 + change.shift).clamp(0, len(text.token_ids) - 1)
    layers = change.layers or head.config.feature_layers
    dtype = head.fc.weight.dtype
    features = torch.cat([text.states[layer][before] for layer in layers], dim=-1).to(dtype)
    config = replace(head.config, rope_theta=change.rope_theta) if change.rope_theta else head.config
    hidden = head.fuse(features)
    query, key, value = (
        part.transpose(0, 1)
        for part in head.midlayer.project(embed(text.token_ids[rows]).to(dtype), hidden, Rotary(config, rows))
    )
    attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    residual = head.midlayer.hidden_norm(hidden) if change.norms_residual else hidden
    output = head.midlayer.finish(attended.transpose(0, 1).flatten(1), residual)
    normed = head.norm(output)
    if change.final_norm is not None:
        normed = normed / head.norm.weight * change.final_norm.to(dtype)
    return head.target_token_ids[head.lm_head(normed).argmax(-1)] + change.token_shift


def changes_for(head: Eagle3Head, model: PreTrainedModel) -> Iterator[Experiment]:
    """Everything that is tried."""
    for shift in (-1, 1):
        yield Experiment(
            "features are shifted by one position",
            f"with the features of the position {'before' if shift < 0 else 'behind'}",
            "The head was trained on other pairs of token and feature: train it on the target's features of the token "
            "before (`pilotfish train eagle3 --start-from`)",
            shift=shift,
        )
        yield Experiment(
            "the map of the draft vocabulary is shifted",
            f"with the ids of d2t {shift:+}",
            "Correct d2t and t2d in the head's folder: target id = draft id + d2t[draft id]",
            token_shift=shift,
        )
    yield from _layer_changes(head, int(model.config.get_text_config().num_hidden_layers))
    yield from _rope_changes(head, model)
    yield Experiment(
        "a norm is missing",
        "with the residual normed as well",
        "The head was trained with norm_before_residual, which is not served here: train it anew with --start-from",
        norms_residual=True,
    )
    norm = getattr(model.get_decoder(), "norm", None)
    if isinstance(weight := getattr(norm, "weight", None), Tensor):
        yield Experiment(
            "a norm is missing",
            "with the target's norm before the head's output",
            "The checkpoint's norm.weight is not that of training: copy the target's there, or convert the head again",
            final_norm=weight,
        )


def _layer_changes(head: Eagle3Head, num_layers: int) -> Iterator[Experiment]:
    own = head.config.feature_layers
    others = [tuple(layer + shift for layer in own) for shift in (-1, 1, -2, 2)]
    others += [default_feature_layers(num_layers), own[::-1]]
    for layers in dict.fromkeys(others):
        if layers != own and all(0 <= layer <= num_layers for layer in layers):
            yield Experiment(
                "the features are those of other layers than in training",
                f"with the layers {list(layers)} in place of {list(own)}",
                f"Set eagle_aux_hidden_state_layer_ids in the head's config.json to {list(layers)}",
                layers=layers,
            )


def _rope_changes(head: Eagle3Head, model: PreTrainedModel) -> Iterator[Experiment]:
    text = model.config.get_text_config()
    of_target = float((getattr(text, "rope_parameters", None) or {}).get("rope_theta", 0.0))
    for theta in dict.fromkeys((of_target, *_THETAS)):
        if theta and theta != head.config.rope_theta:
            yield Experiment(
                _ROPE,
                f"with rope_theta {theta:g} in place of {head.config.rope_theta:g}",
                f"Set rope_theta in the head's config.json to {theta:g}",
                rope_theta=theta,
            )


def find_fault(head: Eagle3Head, model: PreTrainedModel, texts: Sequence[ComputedText]) -> Finding | None:
    """What the most helpful change says; None: none helps."""
    embed = head.embed_tokens or model.get_input_embeddings()
    as_served = share_right(head, embed, texts, AS_SERVED)
    shares = {change: share_right(head, embed, texts, change) for change in changes_for(head, model)}
    best = max(shares, key=lambda change: shares[change])
    num_positions = sum(len(text.token_ids) - 1 - text.prompt_len for text in texts)
    if shares[best] < as_served + least_gain(num_positions):
        return None
    num_others = len(shares) - 1
    evidence = (
        f"{best.what} {shares[best]:.0%} of first drafts are right, {as_served:.0%} as it is served; none of "
        f"{num_others} other changes helps as much"
    )
    return Finding(best.cause, evidence, best.advice)

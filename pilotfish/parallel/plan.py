"""How the modules of a model are cut: as transformers' own tensor-parallel plans say."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention.modules import attention_modules, has_own_keys
from pilotfish.parallel.sizes import TensorCut

_STYLES = {
    "colwise": TensorCut.ROWS,  # of the transposed matrix, which torch stores
    "rowwise": TensorCut.COLUMNS,
    "replicated_with_grad_allreduce": TensorCut.WHOLE,
}


def module_cuts(model: PreTrainedModel) -> dict[str, TensorCut]:
    """The cut of every module that is cut, by name.

    Raises: UnsupportedModelError for a model that transformers has no plan for, or one with more than linears in it.
    """
    if not all(has_own_keys(module) for module, _ in attention_modules(model)):
        raise UnsupportedModelError(
            f"{type(model).__name__} cannot be cut into ranks: queries, keys and values come from one matrix"
        )
    plan: dict[str, str] = dict(model.tp_plan or {})
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    cuts: dict[str, TensorCut] = {}
    for name, module in model.named_modules():
        style = plan.get(_pattern(name))
        if module is head and type(module) is nn.Linear:
            cuts[name] = TensorCut.VOCABULARY
        elif module is embedding:
            if type(module) is nn.Embedding:  # those that do more stay whole
                cuts[name] = TensorCut.VOCABULARY
        elif style is not None and (cut := _cut(model, name, module, style)) is not TensorCut.WHOLE:
            cuts[name] = cut
    if not {TensorCut.ROWS, TensorCut.COLUMNS} <= set(cuts.values()):
        raise UnsupportedModelError(f"transformers has no tensor-parallel plan for {type(model).__name__}")
    return cuts


def _cut(model: Any, name: str, module: nn.Module, style: str) -> TensorCut:
    cut = _STYLES.get(style)
    if cut is None or (cut is not TensorCut.WHOLE and type(module) is not nn.Linear):
        raise UnsupportedModelError(
            f"{type(model).__name__} cannot be cut into ranks: {name} ({type(module).__name__}) asks for {style!r}"
        )
    return cut


def _pattern(name: str) -> str:
    """A module's name as plans write it: `model.layers.*.mlp.up_proj`."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))

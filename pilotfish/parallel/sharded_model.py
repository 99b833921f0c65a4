"""A rank's part of a model, built without weights and filled from the checkpoint tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.models.loading import silence_transformers
from pilotfish.models.scaled_linear import ScaledLinear, WeightFormat, can_quantise
from pilotfish.parallel.checkpoint import Checkpoint
from pilotfish.parallel.group import RankGroup
from pilotfish.parallel.layers import SHARD, ParallelEmbedding, ParallelHead, RowParallelLinear, column_parallel
from pilotfish.parallel.plan import module_cuts
from pilotfish.parallel.sizes import TensorCut


def empty_model(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The whole model without weights, on the meta device. Raises ModelError for a config.json that makes none."""
    silence_transformers()
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{folder} makes no model: {error}") from error
    return model


def load_shard(
    folder: Path,
    group: RankGroup,
    dtype: torch.dtype,
    device: torch.device,
    weight_format: WeightFormat | None = None,
) -> PreTrainedModel:
    """This rank's part, ready to run. No more than one part of one tensor is held beside it.

    weight_format: what the layers' linears are rounded to, each before the next is read; None: they are not.
    Raises: ModelError for weights that are missing or do not fit; UnsupportedModelError for a model without a plan.
    """
    model = empty_model(folder, dtype)
    cuts = module_cuts(model)
    names = {name for name, _ in model.named_parameters()}  # of tied ones only one
    embedding = _name_of(model, model.get_input_embeddings())
    is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    fill_buffers(model, device)
    cut_modules(model, group)
    if is_tied:
        _tie(model)
    body = _name_of(model, model.get_decoder())
    with Checkpoint(folder) as checkpoint:
        for name, buffer in stored_buffers(model):
            buffer.copy_(_checked(name, checkpoint.read(name, TensorCut.WHOLE, 0, 1, buffer.dtype), buffer))
        for local_name, parameter in list(model.named_parameters()):
            name = ".".join(part for part in local_name.split(".") if part != SHARD)
            cut = _cut_of(name, cuts)
            if name not in names:  # an output projection that is tied to an embedding that is not cut
                name = f"{embedding}.weight"
            tensor = checkpoint.read(name, cut, group.rank, group.num_ranks, dtype)
            module = _assign(model, local_name, _checked(name, tensor, parameter).to(device))
            is_read = not any(left.is_meta for left in module.parameters())
            if weight_format and is_read and local_name.startswith(f"{body}.") and can_quantise(module):
                _replace(model, local_name.rpartition(".")[0], ScaledLinear(module, weight_format, device))
    if is_tied:
        _tie(model)
    _require_loaded(model)
    return model.eval().requires_grad_(False)


def _cut_of(name: str, cuts: Mapping[str, TensorCut]) -> TensorCut:
    """The cut of a parameter, by its name in the whole model."""
    module, _, kind = name.rpartition(".")
    cut = cuts.get(module, TensorCut.WHOLE)
    # A bias is added once, to the sum.
    return TensorCut.WHOLE if cut is TensorCut.COLUMNS and kind == "bias" else cut


def _require_loaded(model: PreTrainedModel) -> None:
    left = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    left += [name for name, buffer in model.named_buffers() if buffer.is_floating_point() and buffer.isnan().any()]
    if left:
        raise UnsupportedModelError(f"{type(model).__name__} has a tensor that cannot be loaded in parts: {left[0]}")


def whole_embedding(folder: Path, model: PreTrainedModel) -> nn.Module:
    """A rank's input embedding as one that knows every token without the other ranks: the model's own where it is not
    cut, else read from the folder. Raises ModelError for one that cannot be read."""
    embedding: nn.Module = model.get_input_embeddings()
    if not isinstance(embedding, ParallelEmbedding):
        return embedding
    part = embedding.shard.weight
    with Checkpoint(folder) as checkpoint:
        weight = checkpoint.read(f"{_name_of(model, embedding)}.weight", TensorCut.WHOLE, 0, 1, part.dtype).to(
            part.device
        )
    num_tokens, width = weight.shape
    return nn.Embedding(num_tokens, width, _weight=weight, _freeze=True)


def _name_of(model: nn.Module, module: nn.Module) -> str:
    names: dict[nn.Module, str] = {each: name for name, each in model.named_modules()}
    return names[module]


def fill_buffers(model: PreTrainedModel, device: torch.device) -> None:
    """Compute what no checkpoint holds (rotary frequencies), as transformers does after loading. What it does not
    compute is NaN."""
    for module in model.modules():
        missing = {name: buffer for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta}
        for name, buffer in missing.items():
            unknown = float("nan") if buffer.is_floating_point() else 0
            setattr(module, name, torch.full_like(buffer, unknown, device=device))
        if missing:
            with torch.no_grad():
                model._init_weights(module)


def stored_buffers(model: PreTrainedModel) -> list[tuple[str, Tensor]]:
    """Buffers that a checkpoint holds (what an activation is scaled by, what a router adds)."""
    stored = model.state_dict().keys()
    return [(name, buffer) for name, buffer in model.named_buffers() if name in stored]


def cut_modules(model: PreTrainedModel, group: RankGroup) -> None:
    """Put this rank's part in the place of every module that is cut."""
    for name, cut in module_cuts(model).items():
        _replace(model, name, _part(model.get_submodule(name), cut, group))


def _part(module: nn.Module, cut: TensorCut, group: RankGroup) -> nn.Module:
    if isinstance(module, nn.Embedding):
        return ParallelEmbedding(module, group)
    assert isinstance(module, nn.Linear), "module_cuts names no others"
    if cut is TensorCut.VOCABULARY:
        return ParallelHead(module, group)
    return RowParallelLinear(module, group) if cut is TensorCut.COLUMNS else column_parallel(module, group)


def _tie(model: PreTrainedModel) -> None:
    """Make the output projection's part the embedding's, where both are cut by the vocabulary."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if isinstance(embedding, ParallelEmbedding):
        head.shard.weight = embedding.shard.weight


def _checked(name: str, tensor: Tensor, parameter: Tensor) -> Tensor:
    if tensor.shape != parameter.shape:
        raise ModelError(
            f"the tensor {name} does not fit: this rank's part has the shape {list(tensor.shape)}, and config.json "
            f"asks for {list(parameter.shape)}"
        )
    return tensor


def _assign(model: nn.Module, name: str, tensor: Tensor) -> nn.Module:
    """Make the tensor the parameter of that name; returns the module that has it."""
    path, _, kind = name.rpartition(".")
    module = model.get_submodule(path)
    setattr(module, kind, nn.Parameter(tensor, requires_grad=False))
    return module


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)

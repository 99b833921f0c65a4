"""Distilling a stand-alone draft model: a few of the target's own layers, taught to predict what all of them do.

The result is an ordinary causal LM folder with the target's tokenizer.

Shapes: T tokens of a conversation, R rows with a loss, V vocabulary.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, PreTrainedModel

from pilotfish.drafters.model.checkpoint import save_draft_model
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.loading import LoadedModel
from pilotfish.training.data.samples import Sample
from pilotfish.training.distillation import Teacher, soft_cross_entropy
from pilotfish.training.request import TrainingRequest
from pilotfish.training.trainee import Trainee

_CHUNK_ROWS = 256
"""Rows whose logits over the whole vocabulary are in memory at once."""


class DraftObjective:
    """The loss and the held-out acceptance of a draft model; see loop.Objective."""

    def __init__(self, model: PreTrainedModel, target: PreTrainedModel, num_depths: int) -> None:
        """target: only its output projection is kept. num_depths: how deep chains are evaluated."""
        self.module = model
        self.num_depths = num_depths
        weight: Tensor = target.get_output_embeddings().get_parameter("weight")
        self._teacher = Teacher(weight.detach().clone())

    def loss(self, samples: Sequence[Sample], progress: float) -> Tensor:
        """Mean over rows. Given the true tokens a draft model sees nothing of its own, so depth plays no part."""
        del progress
        num_rows = sum(len(sample.token_ids) - sample.prompt_len + 1 for sample in samples)
        loss = samples[0].log_mass.new_zeros(())
        for sample in samples:
            hidden = self._hidden(sample)
            for rows in torch.split(torch.arange(sample.prompt_len - 1, len(sample.token_ids)), _CHUNK_ROWS):
                loss = loss + checkpoint(self._chunk_loss, hidden[rows], sample, rows, use_reentrant=False) / num_rows
        return loss

    def agreement(self, samples: Sequence[Sample]) -> Tensor:
        """See loop.Objective. Every depth agrees as often as the first, given the true tokens; chains differ."""
        total = samples[0].choices.new_zeros(2 * self.num_depths + 1)
        for sample in samples:
            hidden = self._hidden(sample)[sample.prompt_len - 1 :]
            chosen = torch.cat([self._logits(part).argmax(-1) for part in torch.split(hidden, _CHUNK_ROWS)])
            agrees = chosen == sample.choices[sample.prompt_len - 1 :]
            num_drafts = len(agrees) - self.num_depths + 1
            if num_drafts < 1:
                continue
            windows = agrees.unfold(0, self.num_depths, 1).long()  # [drafts, depths]
            total += torch.cat(
                (torch.tensor([num_drafts], device=agrees.device), windows.sum(0), windows.cumprod(1).sum(0))
            )
        return total

    def _hidden(self, sample: Sample) -> Tensor:
        body: Any = self.module.get_decoder()
        hidden: Tensor = body(sample.token_ids.unsqueeze(0), use_cache=False).last_hidden_state[0]
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.module.get_output_embeddings()(hidden)
        return logits

    def _chunk_loss(self, hidden: Tensor, sample: Sample, rows: Tensor) -> Tensor:
        probs = self._teacher.probs(sample.last_hidden[rows], sample.log_mass[rows])
        return soft_cross_entropy(self._logits(hidden), probs, probs.new_ones(len(rows)))


def new_draft_model(loaded: LoadedModel, num_layers: int) -> PreTrainedModel:
    """A model of num_layers of the target's layers: all but one from its start, and its last; float32.

    num_layers: fewer than the target's. Raises: UnsupportedModelError for an architecture without a list of them.
    """
    config = copy.deepcopy(loaded.model.config)
    text = config.get_text_config()
    total = int(text.num_hidden_layers)
    kept = _kept_layers(num_layers, total)
    text.num_hidden_layers = num_layers
    if getattr(text, "layer_types", None) is not None:
        text.layer_types = [text.layer_types[index] for index in kept]
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    state = dict(_renumbered(loaded.model.state_dict(), {old: new for new, old in enumerate(kept)}))
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or any(".layers." in name for name in missing):
        raise UnsupportedModelError(f"no layers can be taken out of {type(loaded.model).__name__}")
    return model.requires_grad_(True)


def needed_layers(request: TrainingRequest, num_layers: int) -> Sequence[int]:
    """See drafter_registry."""
    return _kept_layers(request.num_layers, num_layers)


def _kept_layers(num_kept: int, num_layers: int) -> list[int]:
    """The layers of a target of num_layers that a draft model of num_kept layers begins with."""
    return [*range(num_kept - 1), num_layers - 1]


def new_trainee(request: TrainingRequest, loaded: LoadedModel, samples: Sequence[Sample], run_folder: Path) -> Trainee:
    """See training.trainee. Samples choose nothing."""
    del samples, run_folder
    model = new_draft_model(loaded, request.num_layers).to(loaded.model.device)
    return Trainee(
        objective=DraftObjective(model, loaded.model, request.num_depths),
        save=lambda folder: save_draft_model(model, loaded.folder, folder),
        title="draft model",
        description="a stand-alone draft model, an ordinary causal language model with the target's tokenizer",
        facts={"layers": str(request.num_layers)},
    )


def _renumbered(state: dict[str, Tensor], places: dict[int, int]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the kept layers under their new numbers, and all that belong to no layer."""
    for name, tensor in state.items():
        layer = re.search(r"\.layers\.(\d+)\.", name)
        if layer is None:
            yield name, tensor
        elif int(layer[1]) in places:
            yield f"{name[: layer.start(1)]}{places[int(layer[1])]}{name[layer.end(1) :]}", tensor

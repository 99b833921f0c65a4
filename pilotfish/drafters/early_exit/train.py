"""Training an exit on a frozen target (2404.18911, section 3.1).

The target's layers before the block see the true tokens in training and in drafting alike, so one depth is all there is
to learn. What leaves them is computed from the nearest hidden state that the samples hold: the middle one of the
default feature layers is what the default exit takes.

Shapes: T rows of a conversation, A rows that decide an answer's tokens, H hidden size, Vd draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.drafters.early_exit.checkpoint import save_exit
from pilotfish.drafters.early_exit.config import ExitConfig, chosen_layer
from pilotfish.drafters.early_exit.module import ExitHead, run_layer
from pilotfish.features import default_feature_layers
from pilotfish.models.loading import LoadedModel
from pilotfish.models.store.head_config import HeadTarget
from pilotfish.training.data.samples import Sample
from pilotfish.training.distillation import Teacher, output_rows, soft_cross_entropy
from pilotfish.training.request import TrainingRequest
from pilotfish.training.trainee import Trainee
from pilotfish.training.vocabulary import chosen_vocabulary


class ExitObjective:
    """The loss and the held-out acceptance of an exit; see loop.Objective."""

    def __init__(self, head: ExitHead, target: PreTrainedModel, num_depths: int) -> None:
        """head: not before all features. target: in eval mode; its attention becomes SDPA."""
        self.module = head
        self.num_depths = num_depths
        self._target = target
        self._teacher = Teacher(output_rows(target, head.token_map))
        target.set_attn_implementation("sdpa")
        layers, exit_layer = _layers(target), head.config.exit_layer
        nearest = _nearest_features(exit_layer, len(layers))
        self._place = default_feature_layers(len(layers)).index(nearest)
        self._between = layers[nearest:exit_layer]

    def loss(self, samples: Sequence[Sample], progress: float) -> Tensor:
        """Mean over rows."""
        del progress
        logits = torch.cat([self._logits(sample) for sample in samples])
        probs = self._teacher.probs(
            torch.cat([sample.answer_hidden for sample in samples]),
            torch.cat([sample.log_mass[sample.prompt_len - 1 :] for sample in samples]),
        )
        return soft_cross_entropy(logits, probs, probs.new_full((len(logits),), 1 / max(1, len(logits))))

    def agreement(self, samples: Sequence[Sample]) -> Tensor:
        """See loop.Objective; a draft starts at every row that has an answer row for each depth."""
        counts = torch.zeros(2 * self.num_depths + 1, dtype=torch.int64)
        for sample in samples:
            agrees = self.module.token_map[self._logits(sample).argmax(-1)] == sample.choices[sample.prompt_len - 1 :]
            if len(agrees) >= self.num_depths:
                drafts = agrees.long().unfold(0, self.num_depths, 1)
                chained = drafts.cummin(dim=1).values
                counts[0] += len(drafts)
                counts[1:] += torch.cat((drafts.sum(0), chained.sum(0))).cpu()
        return counts

    def _logits(self, sample: Sample) -> Tensor:
        """[A, Vd]"""
        head, size = self.module, self.module.config.hidden_size
        positions = torch.arange(len(sample.token_ids), device=sample.token_ids.device)
        states = sample.features[:, self._place * size : (self._place + 1) * size].to(self._target.dtype)
        with torch.no_grad():
            for layer in self._between:
                states = run_layer(layer, self._target, states, positions)
        hidden = run_layer(head.block, self._target, states.to(head.lm_head.weight.dtype), positions)
        return head.logits(hidden[sample.prompt_len - 1 :])


def _nearest_features(exit_layer: int, num_layers: int) -> int:
    """The last layer before the exit whose inputs are features."""
    return max(layer for layer in default_feature_layers(num_layers) if 0 <= layer <= exit_layer)


def needed_layers(request: TrainingRequest, num_layers: int) -> Sequence[int]:
    """See drafter_registry: those between the features and the exit, and the last one, as which its block begins."""
    exit_layer = chosen_layer(request.exit_layer, num_layers, "--exit-layer")
    return [*range(_nearest_features(exit_layer, num_layers), exit_layer), num_layers - 1]


def new_trainee(request: TrainingRequest, loaded: LoadedModel, samples: Sequence[Sample], run_folder: Path) -> Trainee:
    """See training.trainee. Samples choose the exit's vocabulary."""
    token_ids, facts = chosen_vocabulary(request, loaded, samples, run_folder)
    head = new_head(loaded, token_ids, request.exit_layer).to(loaded.model.device)
    num_layers = len(_layers(loaded.model))
    return Trainee(
        objective=ExitObjective(head, loaded.model, request.num_depths),
        save=lambda folder: save_exit(head, folder),
        title="early exit",
        description=f"an exit after {head.config.exit_layer} layers (`block`, `norm`, `lm_head`, `token_map`)",
        facts={**facts, "layers of the target": f"{head.config.exit_layer} of {num_layers}"},
    )


def new_head(loaded: LoadedModel, draft_token_ids: Tensor, exit_layer: int) -> ExitHead:
    """An exit whose weights are those of the target's last layer, norm and output projection.

    draft_token_ids: int64 [Vd]. exit_layer: 0 for half of the layers. Raises ConfigError for one that there is not.
    """
    target = HeadTarget.of_model(loaded)
    config = ExitConfig(
        exit_layer=chosen_layer(exit_layer, target.num_layers, "--exit-layer"),
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        draft_vocab_size=len(draft_token_ids),
        target_model=loaded.model_id,
        tokenizer_fingerprint=target.fingerprint,
    )
    head = ExitHead(config, loaded.model)
    head.block.load_state_dict(_layers(loaded.model)[-1].state_dict())
    head.token_map.copy_(draft_token_ids)
    with torch.no_grad():
        head.lm_head.weight.copy_(output_rows(loaded.model, draft_token_ids))
    return head.float().requires_grad_()


def _layers(target: PreTrainedModel) -> Any:
    body: Any = target.get_decoder()
    return body.layers

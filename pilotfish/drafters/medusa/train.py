"""Training Medusa heads (2401.10774) on a frozen target: head k learns the target's distribution k + 1 rows later.

Legend: H hidden size, Vd draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.drafters.medusa.checkpoint import load_medusa, save_medusa
from pilotfish.drafters.medusa.config import MedusaConfig
from pilotfish.drafters.medusa.module import MedusaHeads
from pilotfish.errors import ModelError
from pilotfish.models.loading import LoadedModel
from pilotfish.models.store.head_config import HeadTarget
from pilotfish.training.data.samples import Sample
from pilotfish.training.distillation import Teacher, output_rows, soft_cross_entropy
from pilotfish.training.request import TrainingRequest
from pilotfish.training.trainee import Trainee
from pilotfish.training.vocabulary import chosen_vocabulary

HEAD_DECAY = 0.8
"""Weight of a head relative to the one before it (the paper's lambda)."""


class MedusaObjective:
    """The loss and the held-out acceptance of Medusa heads; see loop.Objective."""

    def __init__(self, heads: MedusaHeads, target: PreTrainedModel) -> None:
        """target: only its output projection is kept."""
        self.module = heads
        self.num_depths = heads.config.num_heads
        self._teacher = Teacher(output_rows(target, heads.token_map))

    def loss(self, samples: Sequence[Sample], progress: float) -> Tensor:
        """Mean over rows and, weighted, over heads."""
        del progress  # all heads train from the start
        rows = list(_rows(samples, self.num_depths))
        last_hidden = torch.cat([sample.last_hidden[own] for sample, own in rows]).to(_dtype(self.module))
        total = sum(HEAD_DECAY**index for index in range(self.num_depths))
        loss = last_hidden.new_zeros((), dtype=torch.float32)
        # Once for all heads: their rows are the same but for the first and the last few.
        taught = [self._teacher_probs(sample, own) for sample, own in rows]
        for index in range(self.num_depths):
            logits = self.module.logits(index, last_hidden)
            probs = torch.cat([p[index : index + len(own)] for p, (_, own) in zip(taught, rows, strict=True)])
            weights = probs.new_full((len(logits),), HEAD_DECAY**index / total / max(1, len(logits)))
            loss = loss + soft_cross_entropy(logits, probs, weights)
        return loss

    def _teacher_probs(self, sample: Sample, own: Tensor) -> Tensor:
        """[rows + depths - 1, Vd]: the distributions that the heads learn at rows `own`, the first head's first."""
        start = sample.prompt_len
        ahead = slice(start, start + len(own) + self.num_depths - 1)
        return self._teacher.probs(sample.last_hidden[ahead], sample.log_mass[ahead])

    def agreement(self, samples: Sequence[Sample]) -> Tensor:
        """See loop.Objective; a draft starts at every row that has an answer row for each head."""
        rows = list(_rows(samples, self.num_depths))
        last_hidden = torch.cat([sample.last_hidden[own] for sample, own in rows]).to(_dtype(self.module))
        single, chained = [], []
        ahead = last_hidden.new_ones(len(last_hidden), dtype=torch.bool)
        for index in range(self.num_depths):
            logits = self.module.logits(index, last_hidden)
            choices = torch.cat([sample.choices[own + index + 1] for sample, own in rows])
            agrees = self.module.token_map[logits.argmax(-1)] == choices
            ahead = ahead & agrees
            single.append(agrees.sum())
            chained.append(ahead.sum())
        return torch.stack([torch.tensor(len(last_hidden), device=last_hidden.device), *single, *chained])


def needed_layers(request: TrainingRequest, num_layers: int) -> Sequence[int]:
    """See drafter_registry: none."""
    del request, num_layers
    return ()


def new_trainee(request: TrainingRequest, loaded: LoadedModel, samples: Sequence[Sample], run_folder: Path) -> Trainee:
    """See training.trainee. Samples choose the heads' vocabulary."""
    token_ids, facts = chosen_vocabulary(request, loaded, samples, run_folder)
    heads = new_heads(loaded, token_ids, request.num_depths).to(loaded.model.device)
    if request.start_from is not None:
        start_from(heads, request.start_from, loaded)
        facts["first weights"] = f"the heads `{request.start_from.absolute().name}`"
    return Trainee(
        objective=MedusaObjective(heads, loaded.model),
        save=lambda folder: save_medusa(heads, folder),
        title="medusa",
        description="Medusa heads in the published layout (`medusa_head.K.0.linear`, `medusa_head.K.1`, `token_map`)",
        facts=facts,
    )


def new_heads(loaded: LoadedModel, draft_token_ids: Tensor, num_heads: int) -> MedusaHeads:
    """Heads whose blocks change nothing yet and whose projections are the target's. draft_token_ids: int64 [Vd]."""
    heads = MedusaHeads(
        MedusaConfig(
            hidden_size=int(loaded.model.config.get_text_config().hidden_size),
            vocab_size=loaded.vocab_size,
            num_heads=num_heads,
            draft_vocab_size=len(draft_token_ids),
            target_model=loaded.model_id,
            tokenizer_fingerprint=loaded.fingerprint,
        )
    )
    heads.token_map.copy_(draft_token_ids)
    projection = output_rows(loaded.model, draft_token_ids)
    with torch.no_grad():
        for head in heads.medusa_head:
            head.get_submodule("1").get_parameter("weight").copy_(projection)
    return heads


@torch.no_grad()
def start_from(heads: MedusaHeads, folder: Path, loaded: LoadedModel) -> None:
    """Give new heads the blocks of those in a folder, and the output rows of the tokens that both propose.

    Raises: what load_medusa does; ModelError for heads of another target or number.
    """
    config = heads.config
    old = load_medusa(folder, hidden_size=config.hidden_size, vocab_size=config.vocab_size, dtype=torch.float32)
    old.config.check_target(HeadTarget.of_model(loaded), source=str(folder))
    if (old.config.num_heads, old.config.num_layers) != (config.num_heads, config.num_layers):
        raise ModelError(
            f"{folder} has {old.config.num_heads} heads of {old.config.num_layers} blocks, and {config.num_heads} of "
            f"{config.num_layers} are to be trained (--depths)"
        )
    old = old.to(heads.token_map.device)
    place = torch.full((config.vocab_size,), -1, device=heads.token_map.device)
    place[old.token_map] = torch.arange(len(old.token_map), device=place.device)
    known = (place[heads.token_map] >= 0).nonzero().squeeze(1)
    for new, before in zip(heads.medusa_head, old.medusa_head, strict=True):
        new.get_submodule("0").load_state_dict(before.get_submodule("0").state_dict())
        rows = before.get_submodule("1").get_parameter("weight")[place[heads.token_map[known]]]
        new.get_submodule("1").get_parameter("weight")[known] = rows


def _rows(samples: Sequence[Sample], num_heads: int) -> Iterator[tuple[Sample, Tensor]]:
    """Rows from the prompt's last on whose next num_heads rows exist."""
    for sample in samples:
        yield sample, torch.arange(sample.prompt_len - 1, max(sample.prompt_len - 1, len(sample.choices) - num_heads))


def _dtype(module: MedusaHeads) -> torch.dtype:
    return next(module.parameters()).dtype

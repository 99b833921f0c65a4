"""From a method's name to what the loop trains and how the result is written."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.models.eagle3.checkpoint import save_eagle3
from pilotfish.models.loading import LoadedModel
from pilotfish.training.data.conversations import write_json_atomically
from pilotfish.training.data.samples import Sample
from pilotfish.training.draft import DraftObjective, new_draft_model
from pilotfish.training.eagle3 import Eagle3Objective, new_head, start_from
from pilotfish.training.loop import Objective
from pilotfish.training.request import Method, TrainingRequest


def draft_vocabulary(samples: Iterable[Sample], size: int, vocab_size: int) -> tuple[Tensor, float]:
    """The `size` tokens that are frequent in the answers, ascending, and the share of answer tokens that they cover.

    Tokens that never occur fill it up from the lowest ids, which tokenizers give to frequent ones.
    """
    counts: Counter[int] = Counter()
    for sample in samples:
        counts.update(sample.token_ids[sample.prompt_len :].tolist())
    ranked = [token_id for token_id, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    chosen = (ranked + [token_id for token_id in range(vocab_size) if token_id not in counts])[:size]
    covered = sum(counts[token_id] for token_id in chosen)
    return torch.tensor(sorted(chosen)), covered / max(1, counts.total())


_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
)


@dataclass(frozen=True, slots=True)
class Drafter:
    """An untrained drafter."""

    objective: Objective
    save: Callable[[Path], None]
    """Writes the weights into a new folder. Raises OSError when the disk is full."""
    facts: Mapping[str, str]
    """For the model card."""


def new_drafter(request: TrainingRequest, loaded: LoadedModel, samples: Sequence[Sample], run_folder: Path) -> Drafter:
    """The drafter that the request asks for, initialised from the target.

    Samples choose its vocabulary, which is kept in run_folder: more data must not change it under a checkpoint.
    Raises: UnsupportedModelError when it cannot be made of this target.
    """
    torch.manual_seed(request.seed)
    device = loaded.model.device
    match request.method:
        case Method.EAGLE3:
            token_ids, facts = _vocabulary(request, loaded, samples, run_folder)
            head = new_head(loaded, token_ids).to(device)
            if request.start_from is not None:
                start_from(head, request.start_from, loaded)
                facts["first weights"] = f"the head `{request.start_from.absolute().name}`"
            objective = Eagle3Objective(head, loaded.model, request.num_depths)
            return Drafter(objective, lambda folder: save_eagle3(head, folder), facts)
        case Method.DRAFT:
            model = new_draft_model(loaded, request.num_layers).to(device)
            return Drafter(
                DraftObjective(model, loaded.model, request.num_depths),
                lambda folder: _save_model(model, loaded.folder, folder),
                {"layers": str(request.num_layers)},
            )


def _vocabulary(
    request: TrainingRequest, loaded: LoadedModel, samples: Sequence[Sample], run_folder: Path
) -> tuple[Tensor, dict[str, str]]:
    path = run_folder / "vocabulary.json"
    if not path.is_file():
        size = min(request.draft_vocab_size or loaded.vocab_size, loaded.vocab_size)
        token_ids, coverage = draft_vocabulary(samples, size, loaded.vocab_size)
        write_json_atomically(path, {"token_ids": token_ids.tolist(), "coverage": coverage})
    chosen = json.loads(path.read_bytes())
    size, coverage = len(chosen["token_ids"]), chosen["coverage"]
    facts = {"draft vocabulary": f"{size:,} tokens, which cover {coverage:.1%} of the answer tokens"}
    return torch.tensor(chosen["token_ids"]), facts


def _save_model(model: PreTrainedModel, target: Path, folder: Path) -> None:
    """A folder that transformers loads, with the target's tokenizer. The model is in bfloat16 afterwards."""
    model.to(torch.bfloat16).save_pretrained(folder)
    for name in _TOKENIZER_FILES:
        if (target / name).is_file():
            shutil.copyfile(target / name, folder / name)

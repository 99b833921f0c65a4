"""The draft vocabulary of a head in training: the tokens of the target that it can propose."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pilotfish.models.loading import LoadedModel
from pilotfish.training.data.conversations import write_json_atomically
from pilotfish.training.data.samples import Sample
from pilotfish.training.request import TrainingRequest


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


_MIN_COUNT = 2
"""A token that occurred once may be a name that never comes again."""


def refitted_vocabulary(token_ids: Tensor, counts: Mapping[int, float]) -> Tensor:
    """As many tokens as token_ids has, ascending: the most frequent ones of counts, then those that it has already,
    from the lowest ids, which tokenizers give to frequent ones."""
    own = set(token_ids.tolist())
    known = [*own, *(token_id for token_id, count in counts.items() if count >= _MIN_COUNT and token_id not in own)]
    known.sort(key=lambda token_id: (-counts.get(token_id, 0), token_id not in own, token_id))
    return torch.tensor(sorted(known[: len(own)]))


def chosen_vocabulary(
    request: TrainingRequest, loaded: LoadedModel, samples: Sequence[Sample], run_folder: Path
) -> tuple[Tensor, dict[str, str]]:
    """The run's vocabulary, and what the model card says of it.

    It is kept in run_folder: more data must not change it under a checkpoint.
    """
    path = run_folder / "vocabulary.json"
    if not path.is_file():
        size = min(request.draft_vocab_size or loaded.vocab_size, loaded.vocab_size)
        token_ids, coverage = draft_vocabulary(samples, size, loaded.vocab_size)
        write_json_atomically(path, {"token_ids": token_ids.tolist(), "coverage": coverage})
    chosen = json.loads(path.read_bytes())
    size, coverage = len(chosen["token_ids"]), chosen["coverage"]
    facts = {"draft vocabulary": f"{size:,} tokens, which cover {coverage:.1%} of the answer tokens"}
    return torch.tensor(chosen["token_ids"]), facts

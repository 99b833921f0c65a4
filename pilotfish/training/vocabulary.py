"""The draft vocabulary: the tokens that a head can propose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from pilotfish.training.data.samples import Sample


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

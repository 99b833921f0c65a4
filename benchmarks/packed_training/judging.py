"""How well drafters draft: shares of draft tokens that are the target's own first choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from packed_training.target import PackedTarget
from packed_training.tokens import Rows, pack
from packed_training.trainees import Trainee
from pilotfish.drafters.eagle3.checkpoint import load_eagle3
from pilotfish.drafters.eagle3.train import Eagle3Objective
from pilotfish.training.data.conversations import Conversation
from pilotfish.training.data.samples import Sample

_STEP_ROWS = 4


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the K tokens of a draft are the target's."""

    num_drafts: int
    alone: tuple[float, ...]
    """Share of each place that equals the target's first choice, given the true tokens before it."""
    chained: tuple[float, ...]
    """Share of drafts whose tokens up to this place all do."""

    @classmethod
    def of_counts(cls, counts: Tensor) -> Agreement:
        """counts: see training.loop.Objective.agreement."""
        shares = (counts[1:] / counts[0].clamp(min=1)).tolist()
        depths = len(shares) // 2
        return cls(int(counts[0]), tuple(shares[:depths]), tuple(shares[depths:]))

    @property
    def tokens_per_step(self) -> float:
        """Output tokens of a greedy step: the accepted ones and the target's own."""
        return 1 + sum(self.chained)


def judge(trainees: Sequence[Trainee], target: PackedTarget, rows: Rows) -> list[Agreement]:
    """The agreement of each trainee; rows: on the target's device. Exact where answers are greedy: then a draft's own
    tokens are the true ones up to its first mismatch."""
    parts: list[list[Tensor]] = [[] for _ in trainees]
    with torch.no_grad(), torch.autocast(rows.token_ids.device.type, torch.bfloat16):
        for start in range(0, len(rows), _STEP_ROWS):
            some = rows[start : start + _STEP_ROWS]
            states = target.states(some)
            for trainee, counts in zip(trainees, parts, strict=True):
                counts.append(trainee.agreement(some, states))
    return [Agreement.of_counts(torch.stack(counts).sum(0)) for counts in parts]


def judge_chain(
    folder: Path, target: PackedTarget, conversations: Sequence[Conversation], num_tokens: int, num_draft_tokens: int
) -> Agreement:
    """The EAGLE-3 head in a folder, drafting token after token from its own hidden states, as `judge` does."""
    model = target.loaded.model
    head = load_eagle3(folder, num_target_layers=model.config.num_hidden_layers, dtype=torch.float32).to(model.device)
    objective = Eagle3Objective(head, model, num_draft_tokens)
    parts = []
    with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16):
        for conversation in conversations:
            size = min(num_tokens, len(conversation.token_ids))
            rows = pack([conversation], size).to(model.device)
            states = target.states(rows)
            features = torch.cat([states.inputs[layer][0] for layer in head.config.feature_layers], dim=-1)
            sample = Sample(
                conversation.prompt_len,
                rows.token_ids[0],
                features,
                states.last_hidden[0, conversation.prompt_len - 1 :],
                states.choices[0],
                states.log_mass[0],
            )
            parts.append(objective.agreement([sample]))
    return Agreement.of_counts(torch.stack(parts).sum(0))

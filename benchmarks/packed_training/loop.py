"""The loop over packed rows: one run of the target a step, from which every trainee learns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi
from random import Random

import torch
from torch import Tensor, nn

from packed_training.target import PackedTarget
from packed_training.tokens import Rows, pack
from packed_training.trainees import Trainee
from pilotfish.training.data.conversations import Conversation


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How long and how fast."""

    max_minutes: float
    """Wall clock, with looks and saving."""
    learning_rate: float
    batch_rows: int
    row_tokens: int
    num_anchors: int
    """Positions of a row that a step learns from, at most."""
    num_looks: int
    """Evenly over the run; the last one at its end."""
    warm_up_steps: int = 60
    final_share: float = 0.02
    """Share of the learning rate that is left at the end."""
    weight_decay: float = 0.05
    max_gradient_norm: float = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """Where a run stands."""

    step: int
    minutes: float
    num_positions: int
    """Positions that the target ran over."""
    losses: Sequence[float]
    """Mean loss of each trainee since the look before."""


class PackedLoop:
    """Trains all trainees at once; each has an optimiser of its own."""

    def __init__(
        self, target: PackedTarget, trainees: Sequence[Trainee], data: Sequence[Conversation], config: LoopConfig
    ) -> None:
        self._target = target
        self._trainees = trainees
        self._data = data
        self._config = config
        self._device = target.loaded.model.device
        self._optimizers = [
            torch.optim.AdamW(_groups(trainee.module, config.weight_decay), lr=0.0, betas=(0.9, 0.95))
            for trainee in trainees
        ]

    def run(self, on_look: Callable[[Look], None]) -> None:
        """Until the time is over. Nothing waits for the device but looks."""
        start, step, looks = time.monotonic(), 0, 0
        losses = torch.zeros(len(self._trainees), device=self._device)
        since = 0
        for rows in self._batches():
            share = (time.monotonic() - start) / (60 * self._config.max_minutes)
            if looks < self._config.num_looks - 1 and share >= (looks + 1) / self._config.num_looks:
                looks += 1
                on_look(self._look(step, start, losses / max(1, since)))
                losses.zero_()
                since = 0
                continue
            if share >= 1:
                break
            losses += self._step(rows, step, share)
            step, since = step + 1, since + 1
            if step % 8 == 0 and self._device.type == "cuda":
                torch.cuda.synchronize()  # the clock, not a queue of steps, ends the run
        on_look(self._look(step, start, losses / max(1, since)))

    def _look(self, step: int, start: float, losses: Tensor) -> Look:
        num_positions = step * self._config.batch_rows * self._config.row_tokens
        values = losses.tolist()
        return Look(step, (time.monotonic() - start) / 60, num_positions, values)

    def _step(self, rows: Rows, step: int, share: float) -> Tensor:
        """The losses [trainees], on the device."""
        losses = []
        with torch.autocast(self._device.type, torch.bfloat16):
            states = self._target.states(rows)
        for trainee, optimizer in zip(self._trainees, self._optimizers, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = self._learning_rate(step, share)
            optimizer.zero_grad()
            with torch.autocast(self._device.type, torch.bfloat16):
                loss = trainee.loss(rows, states, self._config.num_anchors)
            loss.backward()
            nn.utils.clip_grad_norm_(trainee.module.parameters(), self._config.max_gradient_norm)
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    def _learning_rate(self, step: int, share: float) -> float:
        warm = min(1.0, (step + 1) / self._config.warm_up_steps)
        floor = self._config.final_share
        return self._config.learning_rate * warm * (floor + (1 - floor) * (1 + cos(pi * min(1.0, share))) / 2)

    def _batches(self) -> Iterator[Rows]:
        """Without end; the conversations are shuffled and packed anew in each epoch, and lie on the device whole."""
        size, epoch = self._config.batch_rows, 0
        while True:
            shuffled = list(self._data)
            Random(epoch).shuffle(shuffled)
            rows = pack(shuffled, self._config.row_tokens)
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))
            rows = rows[order].to(self._device)
            for start in range(0, max(1, len(rows) - size + 1), size):
                yield rows[start : start + size]
            epoch += 1


def _groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Matrices decay; norms do not."""
    return [
        {"params": [each for each in module.parameters() if each.dim() > 1], "weight_decay": weight_decay},
        {"params": [each for each in module.parameters() if each.dim() <= 1], "weight_decay": 0.0},
    ]

"""The training loop of every drafter: batches of whole conversations, AdamW, warm-up and cosine, checkpoints.

A run ends after its epochs or its minutes, whichever comes first, and its learning rate with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path
from random import Random
from typing import Protocol

import torch
from torch import Tensor, nn

from pilotfish.training.checkpoints import load_checkpoint, save_checkpoint
from pilotfish.training.curve import Curve, CurvePoint
from pilotfish.training.data.samples import Sample


class Objective(Protocol):
    """What is trained, its loss, and how well it drafts."""

    @property
    def module(self) -> nn.Module: ...

    @property
    def num_depths(self) -> int: ...

    def loss(self, samples: Sequence[Sample], progress: float) -> Tensor:
        """Scalar; progress is the finished share of the run."""

    def agreement(self, samples: Sequence[Sample]) -> Tensor:
        """int64 [2 * depths + 1]: rows compared; of each depth, how many equal the target's argmax given the true
        tokens before them; of each depth, how many do so together with all shallower ones of the same draft."""


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How long and how fast."""

    max_epochs: float = 4.0
    max_minutes: float = 0.0
    """Time limit; 0: none."""
    learning_rate: float = 1e-3
    """Peak of the learning rate."""
    warm_up_steps: int = 30
    final_share: float = 0.03
    """Share of the learning rate that is left at the end."""
    weight_decay: float = 0.05
    max_gradient_norm: float = 1.0
    batch_tokens: int = 2048
    """Tokens of a step, in whole conversations."""
    evaluate_every: int = 50
    """Steps between two looks at the held-out conversations."""
    checkpoint_every_s: float = 120.0
    keeps_checkpoints: bool = True
    """False: for a run of minutes, that is not worth going on with."""
    num_workers: int = 2
    """Threads that share a batch: torch's own wait for each other in every operation."""
    seed: int = 0
    bfloat16: bool = True
    """Compute in bfloat16 (weights and optimiser stay in float32)."""


class TrainingLoop:
    """One run; it goes on from the checkpoint in its folder."""

    def __init__(
        self,
        objective: Objective,
        train: Sequence[Sample],
        held_out: Sequence[Sample],
        config: LoopConfig,
        folder: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """train and held_out must not be empty. Raises OSError and InvalidRequestError of a checkpoint."""
        self._objective = objective
        self._train = train
        self._held_out = held_out
        self._config = config
        self._folder = folder
        self._clock = clock
        self._optimizer = torch.optim.AdamW(
            _groups(objective.module, config.weight_decay), lr=config.learning_rate, betas=(0.9, 0.95)
        )
        self._parameters = [p for p in objective.module.parameters() if p.requires_grad]
        self._device = self._parameters[0].device
        self._steps_per_epoch = len(self._batches(0))
        self.total_steps = max(1, round(self._steps_per_epoch * config.max_epochs))
        self.curve = Curve(folder, objective.num_depths)
        self.progress = load_checkpoint(folder, objective.module, self._optimizer)
        self.curve.forget_after(self.progress.step)

    def run(self, on_progress: Callable[[float, float], None] = lambda *_: None) -> CurvePoint:
        """Train to the end; returns the last evaluation. on_progress gets the finished share and the last loss."""
        checkpoint_at = self._clock() + self._config.checkpoint_every_s
        batches, epoch, losses = self._batches(0), -1, list[float]()
        share = self.share
        while share < 1:
            step = self.progress.step
            if step // self._steps_per_epoch != epoch:
                epoch = step // self._steps_per_epoch
                batches = self._batches(epoch)
            start = self._clock()
            losses.append(self._step(batches[step % self._steps_per_epoch], share))
            self.progress = self.progress.after_step(self._clock() - start)
            share = self.share
            if self.progress.step % self._config.evaluate_every == 0:
                self.curve.add(self.look(self._held_out, losses))
                losses.clear()
            on_progress(share, losses[-1] if losses else self.curve.points[-1].loss)
            if self._clock() >= checkpoint_at:
                self._save()
                checkpoint_at = self._clock() + self._config.checkpoint_every_s
        if losses or not self.curve.points:
            self.curve.add(self.look(self._held_out, losses))
        self._save()
        return self.curve.points[-1]

    def _save(self) -> None:
        if self._config.keeps_checkpoints:
            save_checkpoint(self._folder, self._objective.module, self._optimizer, self.progress)

    @property
    def share(self) -> float:
        """How much of the run is done: steps or minutes, whichever is further."""
        by_steps = self.progress.step / self.total_steps
        limit = 60 * self._config.max_minutes
        return max(by_steps, self.progress.elapsed_s / limit if limit else 0.0)

    def _step(self, samples: Sequence[Sample], share: float) -> float:
        self._objective.module.train()
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate(share)
        parts = [samples[index :: self._config.num_workers] for index in range(self._config.num_workers)]
        weights = [sum(sample.num_answer_tokens for sample in part) for part in parts]
        with ThreadPoolExecutor(len(parts)) as workers:
            results = list(workers.map(lambda part: self._gradients(part, share), parts))
        for parameter, *gradients in zip(self._parameters, *(part for _, part in results), strict=True):
            # Summed in a fixed order, whichever worker came first.
            parameter.grad = sum(
                (gradient * (weight / sum(weights)) for gradient, weight in zip(gradients, weights, strict=True)),
                torch.zeros(()),
            )
        nn.utils.clip_grad_norm_(self._parameters, self._config.max_gradient_norm)
        self._optimizer.step()
        return sum(loss * weight for (loss, _), weight in zip(results, weights, strict=True)) / sum(weights)

    def _gradients(self, samples: Sequence[Sample], share: float) -> tuple[float, Sequence[Tensor]]:
        """Loss and gradients of a part of a batch, in a worker of its own."""
        if not samples:
            return 0.0, [torch.zeros(()) for _ in self._parameters]
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._config.bfloat16):
            loss = self._objective.loss([sample.to(self._device) for sample in samples], share)
        return float(loss.detach()), torch.autograd.grad(loss, self._parameters)

    def _learning_rate(self, share: float) -> float:
        warm = min(1.0, (self.progress.step + 1) / self._config.warm_up_steps)
        floor = self._config.final_share
        return self._config.learning_rate * warm * (floor + (1 - floor) * (1 + cos(pi * min(1.0, share))) / 2)

    def look(self, samples: Sequence[Sample], losses: Sequence[float] = ()) -> CurvePoint:
        """How well the drafter does now on samples; losses are the training losses since the last look."""
        agreement, chained = self._evaluate(samples)
        return CurvePoint(
            step=self.progress.step,
            epoch=self.progress.step / self._steps_per_epoch,
            minutes=self.progress.elapsed_s / 60,
            loss=sum(losses) / max(1, len(losses)),
            agreement=agreement,
            chained=chained,
        )

    def _evaluate(self, samples: Sequence[Sample]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Agreement with the target's argmax of each depth alone, and of each depth with all shallower ones."""
        self._objective.module.eval()
        depths = self._objective.num_depths
        counts = torch.zeros(2 * depths + 1, dtype=torch.int64)
        with torch.inference_mode(), torch.autocast(self._device.type, torch.bfloat16, enabled=self._config.bfloat16):
            for batch in _cut(list(samples), self._config.batch_tokens):
                counts += self._objective.agreement([sample.to(self._device) for sample in batch]).cpu()
        shares = (counts[1:] / counts[0].clamp(min=1)).tolist()
        return tuple(shares[:depths]), tuple(shares[depths:])

    def _batches(self, epoch: int) -> list[list[Sample]]:
        shuffled = list(self._train)
        Random(f"{self._config.seed}:{epoch}").shuffle(shuffled)
        batches = _cut(shuffled, self._config.batch_tokens)
        # An epoch's number of batches depends on the order: resuming needs it constant.
        return batches if epoch == 0 else _fit(batches, self._steps_per_epoch)


def _cut(samples: Sequence[Sample], batch_tokens: int) -> list[list[Sample]]:
    """Runs of samples with about batch_tokens tokens each."""
    batches: list[list[Sample]] = []
    room = 0
    for sample in samples:
        if room <= 0:
            batches.append([])
            room = batch_tokens
        batches[-1].append(sample)
        room -= len(sample.token_ids)
    return batches


def _fit(batches: list[list[Sample]], number: int) -> list[list[Sample]]:
    """The first `number` batches, or some twice."""
    return (batches * 2)[:number] if len(batches) < number else batches[:number]


def _groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Matrices decay; norms do not."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.dim() > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.dim() <= 1], "weight_decay": 0.0},
    ]


_ROWS, _WIDTH = 512, 1024


def prefers_bfloat16() -> bool:
    """Measured with a matrix product, best of three; some ten milliseconds."""
    return _seconds(torch.bfloat16) < _seconds(torch.float32)


def _seconds(dtype: torch.dtype) -> float:
    rows, weight = torch.ones(_ROWS, _WIDTH, dtype=dtype), torch.ones(_WIDTH, _WIDTH, dtype=dtype)
    return min(_time_once(rows, weight) for _ in range(3))


def _time_once(rows: Tensor, weight: Tensor) -> float:
    start = time.perf_counter()
    torch.mm(rows, weight)
    return time.perf_counter() - start

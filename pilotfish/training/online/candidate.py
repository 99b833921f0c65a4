"""A candidate: the head that serves, trained on for minutes by the loop of `pilotfish train`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import torch

from pilotfish.config import LearningConfig
from pilotfish.engine.process.cores import usable_cores
from pilotfish.training.data.samples import Sample
from pilotfish.training.loop import LoopConfig, TrainingLoop
from pilotfish.training.online.heads import num_answer_tokens
from pilotfish.training.trainee import Trainee

EPOCHS = 2.0
BATCH_TOKENS = 1024


@dataclass(frozen=True)
class OwnData:
    """The head's own data, from before it learned from traffic."""

    to_learn: Sequence[Sample] = ()
    held_out: Sequence[Sample] = ()

    @cached_property
    def counts(self) -> dict[int, float]:
        """How often tokens come in the answers to learn from."""
        counts: Counter[int] = Counter()
        for sample in self.to_learn:
            counts.update(sample.token_ids[sample.prompt_len :].tolist())
        return dict(counts)

    def some(self, num_tokens: float, seed: int) -> list[Sample]:
        """Samples of about so many answer tokens, drawn anew for each candidate."""
        order = random.Random(seed).sample(range(len(self.to_learn)), len(self.to_learn))
        return list(_up_to(num_tokens, (self.to_learn[index] for index in order)))


def _up_to(num_tokens: float, samples: Iterator[Sample]) -> Iterator[Sample]:
    for sample in samples:
        if num_tokens <= 0:
            return
        num_tokens -= sample.num_answer_tokens
        yield sample


def mixture(samples: Sequence[Sample], own: OwnData, share: float, seed: int) -> list[Sample]:
    """The samples, and of the own data as much as makes up that share of all answer tokens."""
    num_own = num_answer_tokens(samples) * share / (1 - share) if share < 1 else float("inf")
    return [*samples, *own.some(num_own, seed)]


def train(
    trainee: Trainee,
    samples: Sequence[Sample],
    settings: LearningConfig,
    scratch: Path,
    *,
    bfloat16: bool,
    on_progress: Callable[[float, float], None] = lambda *_: None,
) -> float:
    """Train the head in place; returns the seconds that it took. scratch: a folder for what is not kept.

    on_progress gets the share done and the loss, and may end it by an exception.
    """
    config = LoopConfig(
        max_epochs=EPOCHS,
        max_minutes=settings.max_minutes,
        learning_rate=settings.learning_rate,
        warm_up_steps=5,
        weight_decay=0.0,
        batch_tokens=BATCH_TOKENS,
        evaluate_every=1 << 30,
        keeps_checkpoints=False,
        num_workers=settings.num_threads or usable_cores(),
        bfloat16=bfloat16,
    )
    # Each worker computes on its own: threads of torch's operations would only wait for each other.
    torch.set_num_threads(1)
    loop = TrainingLoop(trainee.objective, samples, list(islice(samples, 1)), config, scratch)
    loop.run(on_progress)
    return loop.progress.elapsed_s

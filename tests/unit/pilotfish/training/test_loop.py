"""The loop learns, stops in time, and goes on after a kill as if there had been none."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pilotfish.errors import InvalidRequestError
from pilotfish.training.checkpoints import save_checkpoint
from pilotfish.training.data.samples import Sample
from pilotfish.training.loop import LoopConfig, TrainingLoop
from tests.unit.pilotfish.training.conftest import KilledError

CONFIG = LoopConfig(max_epochs=5, batch_tokens=20, warm_up_steps=2, evaluate_every=4, learning_rate=0.2, bfloat16=False)


class Regression:
    """Learns that the next choice is the token itself, from one number per token."""

    num_depths = 2

    def __init__(self, size: int = 6) -> None:
        torch.manual_seed(0)
        self.module = nn.Linear(size, size, bias=True)
        self.seen: list[list[int]] = []

    def _logits(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        tokens = torch.cat([sample.token_ids for sample in samples])
        logits: Tensor = self.module(nn.functional.one_hot(tokens, self.module.in_features).float())
        return logits, tokens

    def loss(self, samples: Sequence[Sample], progress: float) -> Tensor:
        self.seen.append([len(sample.token_ids) for sample in samples])
        return nn.functional.cross_entropy(*self._logits(samples))

    def agreement(self, samples: Sequence[Sample]) -> Tensor:
        logits, tokens = self._logits(samples)
        right = (logits.argmax(-1) == tokens).sum()
        return torch.stack([torch.tensor(len(tokens)), right, right * 0, right, right * 0])


def samples(count: int) -> list[Sample]:
    none = torch.empty(0)
    return [Sample(1, torch.arange(3 + index % 5) % 6, none, none, none, none) for index in range(count)]


def loop(folder: Path, config: LoopConfig = CONFIG, **options: Callable[[], float]) -> tuple[TrainingLoop, Regression]:
    objective = Regression()
    return TrainingLoop(objective, samples(23), samples(4), config, folder, **options), objective


def test_it_learns_and_keeps_its_curve(tmp_path: Path) -> None:
    run, _ = loop(tmp_path)
    shares: list[float] = []
    point = run.run(lambda share, loss: shares.append(share))
    assert point.agreement == (1.0, 0.0)
    assert point.mean_acceptance_length == 2.0
    assert shares == sorted(shares)
    assert shares[-1] == 1
    with (tmp_path / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows][:2] == [4, 8]
    assert int(rows[-1]["step"]) == run.total_steps
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("kill_after", [1, 9])
def test_a_killed_run_ends_where_an_unbroken_one_does(tmp_path: Path, kill_after: int) -> None:
    config = replace(CONFIG, checkpoint_every_s=0, max_epochs=2, evaluate_every=8)
    whole, unbroken = loop(tmp_path / "whole", config)
    whole.run()

    first, _ = loop(tmp_path / "parts", config)
    calls = iter(range(kill_after + 1))

    def kill(share: float, loss: float) -> None:
        if next(calls) == kill_after:
            raise KilledError

    with pytest.raises(KilledError):
        first.run(kill)
    second, resumed = loop(tmp_path / "parts", config)
    # The checkpoint follows the report: the step that was reported last is done again.
    assert second.progress.step == kill_after
    second.run()
    for ours, theirs in zip(resumed.module.parameters(), unbroken.module.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    steps = [[point.step for point in run.curve.points] for run in (whole, second)]
    assert steps[0] == steps[1]


def test_minutes_end_a_run(tmp_path: Path) -> None:
    now = iter(range(0, 1_000_000, 10))
    config = replace(CONFIG, max_minutes=2, max_epochs=1000, evaluate_every=8)
    run, _ = loop(tmp_path, config, clock=lambda: float(next(now)))
    point = run.run()
    assert point.step == 12  # 10 seconds a step


def test_workers_share_a_batch_without_changing_it(tmp_path: Path) -> None:
    """Two halves weighted by their answer tokens make the gradient of the whole, where a loss is a mean over them."""
    by_workers = []
    for workers in (1, 2):
        objective = Regression()
        even = [Sample(0, torch.tensor([0, 1, 2, 3]), *[torch.empty(0)] * 4) for _ in range(8)]
        config = replace(CONFIG, num_workers=workers, max_epochs=2)
        TrainingLoop(objective, even, even[:1], config, tmp_path / str(workers)).run()
        by_workers.append(torch.cat([parameter.flatten() for parameter in objective.module.parameters()]))
    torch.testing.assert_close(by_workers[0], by_workers[1])


def test_a_checkpoint_of_another_drafter_is_refused(tmp_path: Path) -> None:
    other = Regression(size=4)
    save_checkpoint(tmp_path, other.module, torch.optim.AdamW(other.module.parameters()), loop(tmp_path)[0].progress)
    with pytest.raises(InvalidRequestError, match="checkpoint of another run"):
        loop(tmp_path)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"torn")
    with pytest.raises(InvalidRequestError, match="checkpoint of another run"):
        loop(tmp_path)

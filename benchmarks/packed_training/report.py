"""What a run leaves: a folder for each trainee with weights, config.json and curve.csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from packed_training.judging import Agreement, judge
from packed_training.loop import Look
from packed_training.target import PackedTarget
from packed_training.tokens import Rows
from packed_training.trainees import Trainee


class Report:
    """Looks at all trainees; keeps curves and weights up to date in the folder `out`."""

    def __init__(
        self,
        out: Path,
        target: PackedTarget,
        trainees: Sequence[Trainee],
        judges: Mapping[str, Rows],
        chain: Mapping[str, Agreement],
    ) -> None:
        """judges: by name, rows to judge by, on the target's device; the first decides. chain: the EAGLE-3 head on the
        same."""
        self._out = out
        self._target = target
        self._trainees = trainees
        self._judges = judges
        self._chain = chain
        for name, agreement in chain.items():
            print(f"EAGLE-3 chain on {name}: {_described(agreement)}", flush=True)

    def look(self, look: Look) -> None:
        """Judge, print, append to the curves, write the weights."""
        judged = {name: judge(self._trainees, self._target, rows) for name, rows in self._judges.items()}
        for index, (trainee, loss) in enumerate(zip(self._trainees, look.losses, strict=True)):
            agreements = {name: each[index] for name, each in judged.items()}
            folder = self._out / trainee.name
            folder.mkdir(parents=True, exist_ok=True)
            self._append(folder / "curve.csv", look, loss, agreements)
            if look.step:
                trainee.save(folder)
            for name, agreement in agreements.items():
                ratio = agreement.tokens_per_step / self._chain[name].tokens_per_step
                print(
                    f"{look.minutes:.2f} min, step {look.step}, {look.num_positions:,} positions, {trainee.name}, "
                    f"loss {loss:.3f}, {name}: {_described(agreement)}, {ratio:.3f} of the chain's",
                    flush=True,
                )

    def _append(self, path: Path, look: Look, loss: float, agreements: Mapping[str, Agreement]) -> None:
        is_new = look.step == 0
        with path.open("w" if is_new else "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow(["step", "minutes", "positions", "loss", *_columns(agreements)])
                values = [value for name in agreements for value in _values(self._chain[name])]
                writer.writerow(["eagle3 chain", "", "", "", *values])
            values = [value for agreement in agreements.values() for value in _values(agreement)]
            writer.writerow([look.step, f"{look.minutes:.2f}", look.num_positions, f"{loss:.4f}", *values])


def _columns(agreements: Mapping[str, Agreement]) -> list[str]:
    names = []
    for name, agreement in agreements.items():
        depths = range(1, len(agreement.alone) + 1)
        names += [f"{name}_{depth}" for depth in depths] + [f"{name}_chained_{depth}" for depth in depths]
        names.append(f"{name}_tokens_per_step")
    return names


def _values(agreement: Agreement) -> list[str]:
    return [f"{value:.4f}" for value in (*agreement.alone, *agreement.chained, agreement.tokens_per_step)]


def _described(agreement: Agreement) -> str:
    alone, chained = (" ".join(f"{value:.3f}" for value in each) for each in (agreement.alone, agreement.chained))
    return f"alone {alone}, chained {chained}, {agreement.tokens_per_step:.3f} tokens a step"

"""The course of a training run: a table of loss and held-out acceptance, curve.csv."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from pilotfish.training.data.conversations import write_text_atomically

_FILE = "curve.csv"


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One look at the held-out conversations."""

    step: int
    epoch: float
    minutes: float
    """Time of training, without evaluation."""
    loss: float
    """Mean of the training losses since the point before."""
    agreement: tuple[float, ...]
    """Share of rows that equal the target's argmax, given the true tokens before them, by depth."""
    chained: tuple[float, ...]
    """Share of drafts whose tokens up to this depth all do, by depth."""

    @property
    def mean_acceptance_length(self) -> float:
        """Output tokens a round of greedy decoding with a chain as deep as was evaluated, the bonus included."""
        return 1 + sum(self.chained)


class Curve:
    """The points of a run, kept in its folder."""

    def __init__(self, folder: Path, num_depths: int) -> None:
        self._folder = folder
        self._num_depths = num_depths
        folder.mkdir(parents=True, exist_ok=True)
        self.points: list[CurvePoint] = []
        if (folder / _FILE).is_file():
            with (folder / _FILE).open(newline="", encoding="utf-8") as file:
                self.points = [_from_row(row, num_depths) for row in csv.reader(file) if row[0] != "step"]

    def forget_after(self, step: int) -> None:
        """Drop points that a run which was killed made after its last checkpoint."""
        self.points = [point for point in self.points if point.step <= step]

    def add(self, point: CurvePoint) -> None:
        """Append and write the table."""
        self.points.append(point)
        self.write(self._folder)

    def write(self, folder: Path) -> None:
        """Write the table into a folder, as a whole."""
        depths = range(1, self._num_depths + 1)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [f"agreement_{depth}" for depth in depths] + [f"chained_{depth}" for depth in depths]
        writer.writerow(["step", "epoch", "minutes", "loss", *names])
        for point in self.points:
            head = [point.step, f"{point.epoch:.3f}", f"{point.minutes:.2f}", f"{point.loss:.5f}"]
            writer.writerow(head + [f"{value:.5f}" for value in (*point.agreement, *point.chained)])
        write_text_atomically(folder / _FILE, text.getvalue())


def _from_row(row: list[str], num_depths: int) -> CurvePoint:
    values = [float(value) for value in row]
    agreement, chained = values[4 : 4 + num_depths], values[4 + num_depths :]
    return CurvePoint(int(values[0]), values[1], values[2], values[3], tuple(agreement), tuple(chained))

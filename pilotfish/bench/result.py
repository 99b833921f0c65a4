"""A finished benchmark, and its JSON form."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from pilotfish.bench.arms import PLAIN
from pilotfish.bench.machine import Machine, this_machine
from pilotfish.bench.metrics import Row, rows_of
from pilotfish.bench.quality import Quality
from pilotfish.bench.suite import Run, Settings
from pilotfish.bench.verdicts import ArmVerdict, arm_verdicts_of, verdicts_of
from pilotfish.client.answer import GenerateOptions, ServiceInfo


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report shows."""

    date: str
    """When it ended: ISO 8601, UTC."""
    machine: Machine
    conditions: dict[str, str | int | float | bool]
    """Model, prompts, lengths, sampling: what the figures hold for."""
    rows: list[Row]
    verdicts: list[ArmVerdict]
    """One for each category, of its fastest exact arm."""
    arm_verdicts: list[ArmVerdict]
    """One for each arm that drafts, over all categories."""
    qualities: dict[str, Quality] = {}
    """Qualities by arm, where texts may differ."""
    baseline: str
    """The arm that speed-ups are over."""

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(row.arm for row in self.rows))

    @property
    def categories(self) -> list[str]:
        return list(dict.fromkeys(row.category for row in self.rows))

    def row(self, arm: str, category: str) -> Row:
        return next(row for row in self.rows if (row.arm, row.category) == (arm, category))

    @property
    def overall(self) -> list[Row]:
        """One row for each arm: over all categories, or of the only one."""
        return [row for row in self.rows if row.category == self.categories[-1]]


def result_of(
    run: Run, settings: Settings, *, prompts_from: str, overrides: Sequence[str] = (), baseline: str = PLAIN
) -> Result:
    """The result of a run that ends now; overrides: what was set apart from the proposers' own."""
    rows = rows_of(run.samples, baseline)
    must_be_identical = all(settings.keeps_text(info) for info in run.infos)
    return Result(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=this_machine(),
        conditions=_conditions(run, settings) | {"prompts from": prompts_from, "set": " ".join(overrides) or "-"},
        rows=rows,
        verdicts=verdicts_of(rows, run.variants, must_be_identical=must_be_identical),
        arm_verdicts=arm_verdicts_of(rows, run.variants, must_be_identical=must_be_identical),
        qualities=run.qualities,
        baseline=baseline,
    )


def _conditions(run: Run, settings: Settings) -> dict[str, str | int | float | bool]:
    info = run.infos[0]
    return {
        **common_conditions(info, settings.options),
        "dtype": info.dtype or "-",
        "deterministic": "yes" if info.deterministic else "no",
        "prompts": len({sample.prompt_index for sample in run.samples}),
        "output tokens at most": settings.max_tokens,
        "in flight": 1,
        "repeats": settings.num_repeats,
    }


def common_conditions(info: ServiceInfo, options: GenerateOptions) -> dict[str, str | int | float | bool]:
    """Conditions of every benchmark: what serves, and how it is asked."""
    emulated = " (EMULATED: its speed says nothing about real hardware)" if info.emulated else ""
    sampled = f"temperature {options.temperature}, {options.acceptance.name.lower()}, seed {options.seed}"
    return {
        "model": info.model_id + emulated,
        "sampling": "greedy" if options.temperature == 0 else sampled,
        "after the end": "goes on" if options.ignore_eos else "stops",
    }

"""`pilotfish profile`: what this machine's engines cost, for the planner and the emulation."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from pilotfish.bench.machine import this_machine
from pilotfish.cli.commands.models import pull_with_progress
from pilotfish.cli.console import error_console, output_console
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson, ConfigFile, Overrides
from pilotfish.cli.output_file import require_writable, write_whole
from pilotfish.config import Config, InTargetDrafterConfig, load_config
from pilotfish.drafter_registry import LOOKUPS, Location, Needs, drafters_of
from pilotfish.emulation.profiles import HardwareProfile, RooflineCost, load_profile, profile_to_yaml
from pilotfish.errors import ConfigError

if TYPE_CHECKING:
    from pilotfish.emulation.cost_measurement import MeasurementPlan
    from pilotfish.emulation.profiles import MeasuredCost

_QUICK_SAMPLES = 3
_QUICK_SEQUENCES = (1, 4, 16)
_MAX_CONTEXT_TOKENS = 8192
"""Where the configuration leaves it to the model."""
_NO_COST = RooflineCost(weights_s=0.0, token_s=0.0)


@fail_on_error()
def profile(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write it.")] = Path("profile.yaml"),
    role: Annotated[
        Literal["target", "draft", "both"], typer.Option("--role", help="The other role's part of FILE is kept.")
    ] = "both",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer shapes and samples: about a minute.")] = False,
    as_json: AsJson = False,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Measure step times of the configured engines, by sequences, tokens and context.

    Pass the file to `pilotfish plan --profile` or `pilotfish up --emulate`. Serving does not need it: a target measures
    its own steps. Measure on an otherwise idle machine.

    [bold]Examples[/]

      pilotfish profile --out mine.yaml                       target and draft, some minutes

      pilotfish profile --out mine.yaml --quick --role target --set target.model=MODEL

      pilotfish plan --profile mine.yaml --rate 10            what it is for

      pilotfish up --emulate mine.yaml
    """
    config = load_config(config_file, overrides or ())
    require_writable(out)
    _require_measurable(config, role)
    result = _blank(config, out)
    if role != "draft":
        result = replace(result, target=_measure(config, "target", quick=quick))
    if role != "target":
        result = replace(result, draft=_measure(config, "draft", quick=quick))
    write_whole(out, profile_to_yaml(replace(result, description=_description(config))))
    decode_s, draft_s = result.target.step_s(1, 1), result.draft.step_s(1, 1)
    if as_json:
        print(json.dumps({"file": str(out), "decode_ms": 1e3 * decode_s, "draft_ms": 1e3 * draft_s}))
        return
    output_console().print(
        f"{out}: a decode step takes {1e3 * decode_s:.2f} ms, a draft step {1e3 * draft_s:.2f} ms; try "
        f"`pilotfish plan --profile {out}` or `pilotfish up --emulate {out}`",
        soft_wrap=True,
    )


def _require_measurable(config: Config, role: str) -> None:
    proposer = config.draft.drafter
    if role != "target" and proposer not in (*LOOKUPS, *drafters_of(Needs.MODEL, Location.DRAFT_SERVICE)):
        raise ConfigError(
            f"draft.proposer is {proposer!r}, whose steps need a target beside them: measure --role target, or set "
            "draft.proposer to model"
        )


def _blank(config: Config, out: Path) -> HardwareProfile:
    """What stands in the file already, or a profile without costs."""
    engine, draft = config.target.engine, config.draft.engine
    known = load_profile(str(out)) if out.is_file() else None
    return HardwareProfile(
        name=out.stem,
        description="",
        target=_NO_COST if known is None else known.target,
        draft=_NO_COST if known is None else known.draft,
        target_gpus=int(engine.device != "cpu"),
        draft_gpus=int(draft.device != "cpu"),
        kv_cache_tokens=engine.kv_cache_tokens,
        draft_kv_cache_tokens=draft.kv_cache_tokens,
        max_sequences=engine.max_sequences,
        max_batch_tokens=engine.max_batch_tokens,
        max_context_tokens=engine.max_context_tokens or _MAX_CONTEXT_TOKENS,
        sources=("measured by `pilotfish profile`",),
    )


def _measure(config: Config, role: Literal["target", "draft"], *, quick: bool) -> MeasuredCost | RooflineCost:
    """Load the engine and time its steps. A lookup costs nothing beside a model."""
    if role == "draft" and config.draft.drafter in LOOKUPS:
        return _NO_COST
    service = config.target if role == "target" else config.draft
    pull_with_progress(service.model, Path(config.cache_dir), config.target.lora if role == "target" else "")
    # torch takes seconds to import, and the command line is free of it.
    from pilotfish.emulation.cost_measurement import CostMeasurement, MeasurementPlan
    from pilotfish.engine.process.factory import build_engine

    # The target alone: what a drafter in it takes is no part of its steps.
    alone = replace(config.target, drafter=InTargetDrafterConfig(proposer="none"))
    config = replace(config, target=alone)
    core = build_engine(config, role)
    plan = MeasurementPlan().within(core, service.engine.max_batch_tokens)
    if quick:
        plan = _shortened(plan)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=error_console()) as bars:
        task = bars.add_task(f"{role} steps", total=None)

        def show(num_done: int, num_all: int) -> None:
            bars.update(task, completed=num_done, total=num_all)

        measurement = CostMeasurement(core, plan, show)
        return measurement.target() if role == "target" else measurement.draft()


def _shortened(plan: MeasurementPlan) -> MeasurementPlan:
    sequences = tuple(count for count in plan.num_sequences if count in _QUICK_SEQUENCES)
    return replace(plan, num_sequences=sequences, samples=_QUICK_SAMPLES)


def _description(config: Config) -> str:
    machine = this_machine()
    return (
        f"{config.target.model} ({config.target.engine.dtype}) with proposer {config.draft.drafter}, "
        f"{len(os.sched_getaffinity(0))} cores of {machine.processor}; measured"
    )

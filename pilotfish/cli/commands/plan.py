"""`pilotfish plan`: how far to draft, how many replicas, and whether the drafters earn their GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilotfish.bench.load.workload import FORMS, parse_lengths
from pilotfish.cli.commands.plan_memory import print_memory_plan
from pilotfish.cli.console import error_console, print_result
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson, NoColor
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import load_profile
from pilotfish.errors import ConfigError
from pilotfish.planning.draft_assumptions import DraftAssumptions, Placement
from pilotfish.planning.fleet import Goals
from pilotfish.planning.plan import make_plan
from pilotfish.planning.planner import ROUND_TRIP_S, Fleet, Planner
from pilotfish.planning.tables import show
from pilotfish.planning.workload import Workload, poisson_workload, read_workload

DEFAULT_RATE = 1.0
DEFAULT_GPU_MEMORY_GB = 80.0


@fail_on_error()
def plan(
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            "-p",
            metavar="NAME|FILE",
            help="A built-in hardware profile, or a file from `pilotfish profile`.",
        ),
    ] = "a100-70b",
    acceptance: Annotated[
        str, typer.Option("--acceptance", "-a", metavar="RATE[,RATE...]", help="Of draft tokens; several: by position.")
    ] = "0.8",
    rate: Annotated[
        float | None,
        typer.Option("--rate", "-r", help=f"Requests per second. Default {DEFAULT_RATE:g}, or the trace's."),
    ] = None,
    prompt_tokens: Annotated[
        str, typer.Option("--prompt-tokens", metavar="LENGTHS", help=f"Prompt length: {FORMS}.")
    ] = "512",
    output_tokens: Annotated[str, typer.Option("--output-tokens", metavar="LENGTHS", help="Answer length.")] = "256",
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE.jsonl",
            help="Recorded requests instead: lines with timestamp (ms), input_length, output_length.",
        ),
    ] = None,
    max_draft_tokens: Annotated[
        int, typer.Option("--num-speculative-tokens", "-k", help="Draft tokens per round, at most.", min=0)
    ] = 8,
    ahead_tokens: Annotated[
        int, typer.Option("--ahead-tokens", help="Tokens drafted ahead per round; 0: none.", min=0)
    ] = SpeculationConfig.draft_ahead_tokens,
    ttft_ms: Annotated[float, typer.Option("--ttft-ms", help="Goal: time to first token.")] = Goals.first_token_s * 1e3,
    token_ms: Annotated[float, typer.Option("--token-ms", help="Goal: time per further token.")] = Goals.token_s * 1e3,
    share: Annotated[float, typer.Option("--share", help="Share of requests to meet the goals.")] = Goals.share,
    targets: Annotated[
        int | None, typer.Option("--targets", help="Evaluate a fleet with this many target replicas instead.", min=1)
    ] = None,
    drafters: Annotated[int, typer.Option("--drafters", help="With --targets: number of draft replicas.", min=0)] = 1,
    network_ms: Annotated[
        float, typer.Option("--network-ms", help="Round trip from orchestrator to replica, handling included.", min=0)
    ] = ROUND_TRIP_S * 1e3,
    as_json: AsJson = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME|FOLDER",
            help="Print instead the memory that this target takes, and the KV cache that fits beside it.",
        ),
    ] = None,
    drafter: Annotated[
        str,
        typer.Option("--drafter", metavar="NAME|FOLDER", help="With --model: a draft model or head, and its share."),
    ] = "",
    feature_layers: Annotated[
        int,
        typer.Option(
            "--feature-layers",
            help="With --model: layers whose hidden states are kept for a head in the draft service (EAGLE-3: 3).",
            min=0,
        ),
    ] = 0,
    gpus: Annotated[
        int | None, typer.Option("--gpus", help="With --model: maximum GPUs per replica (default 1).", min=1)
    ] = None,
    gpu_memory_gb: Annotated[
        float | None, typer.Option("--gpu-memory-gb", help="With --model: memory of one GPU (default 80).", min=0.1)
    ] = None,
    no_color: NoColor = False,
) -> None:
    """Plan a deployment by simulation, before you buy it.

    Computes how many tokens to draft, the batch size at which drafts stop paying, the cheapest fleet that meets the
    latency goals, and whether the drafters' GPUs would be more useful as target replicas. docs/planning.md says how,
    and how exact it is.

    [bold]Examples[/]

      pilotfish plan                                              one request per second of a 70B on A100s

      pilotfish plan --profile a100-70b --acceptance 0.8 --rate 10

      pilotfish plan -a 0.85,0.8,0.7 --rate 40 --token-ms 12 --ttft-ms 500

      pilotfish plan --trace requests.jsonl                        recorded requests

      pilotfish plan --rate 30 --targets 8 --drafters 2            what would this fleet do?

      pilotfish plan --model llama-3.1-70b --gpus 8                what fits on tensor-parallel GPUs?

      pilotfish plan --model llama-3.1-70b --gpus 8 --drafter llama-3.1-8b

      pilotfish profile --out mine.yaml; pilotfish plan -p mine.yaml   your own machine
    """
    if model is not None:
        memory_gb = gpu_memory_gb or DEFAULT_GPU_MEMORY_GB
        print_memory_plan(
            model,
            gpus or 1,
            memory_gb,
            drafter=drafter,
            num_feature_layers=feature_layers,
            as_json=as_json,
            no_color=no_color,
        )
        return
    if gpus is not None or gpu_memory_gb is not None or drafter or feature_layers:
        raise ConfigError(
            "--gpus, --gpu-memory-gb, --drafter and --feature-layers go with --model: name the model that they are for"
        )
    drafting = DraftAssumptions(
        acceptance=_rates(acceptance), max_draft_tokens=max_draft_tokens, ahead_tokens=ahead_tokens
    )
    planner = Planner(
        profile=load_profile(profile),
        drafting=drafting,
        workload=_workload(trace, rate, prompt_tokens, output_tokens),
        round_trip_s=network_ms / 1e3,
    )
    goals = Goals(first_token_s=ttft_ms / 1e3, token_s=token_ms / 1e3, share=share)
    with error_console().status("planning"):
        result = make_plan(planner, goals, _fleet(targets, drafters))
    print_result(result, show, as_json=as_json, no_color=no_color)


def _rates(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--acceptance {text!r} is no rate: write 0.8, or 0.85,0.8,0.7 by position") from None


def _workload(trace: Path | None, rate: float | None, prompt_tokens: str, output_tokens: str) -> Workload:
    if trace is not None:
        return read_workload(trace, rate)
    wanted = DEFAULT_RATE if rate is None else rate
    return poisson_workload(wanted, parse_lengths(prompt_tokens), parse_lengths(output_tokens))


def _fleet(num_targets: int | None, num_drafters: int) -> Fleet | None:
    if num_targets is None:
        return None
    if not num_drafters:
        return Fleet(Placement.NONE, num_targets)
    return Fleet(Placement.SEPARATE, num_targets, num_drafters)

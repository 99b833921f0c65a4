"""`pilotfish train draft | eagle3 | medusa | early_exit`: a drafter for a target, from nothing but the target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pilotfish.cli.commands.models import pull_with_progress
from pilotfish.cli.console import error_console, output_console
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson, ConfigFile, Overrides, check_address
from pilotfish.cli.train_progress import TrainProgress
from pilotfish.config import InternalSecurityConfig, TargetConfig, default_cache_dir, load_config
from pilotfish.drafter_registry import METHODS
from pilotfish.installation import require
from pilotfish.training.request import TrainingRequest

if TYPE_CHECKING:
    Method = str
else:
    Method = Literal[*METHODS]


@fail_on_error()
def train(
    method: Annotated[Method, typer.Argument(help="Kind of drafter.")],
    target: Annotated[
        str,
        typer.Option(
            "--target", "-t", help="The model to draft for: catalogue name, hub id, local folder or GGUF file."
        ),
    ] = TargetConfig.model,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder for the drafter. Default: ./TARGET-METHOD.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="FILE.jsonl",
            help="Train on these answers instead: lines with messages, text, or prompt_len and token_ids. Repeatable.",
        ),
    ] = None,
    target_address: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HOST:PORT",
            callback=check_address,
            help="A running target that computes the hidden states of --data: of any size, in ranks, quantised.",
        ),
    ] = None,
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            "--prompts",
            metavar="FILE.jsonl",
            help="Prompts for the target to answer, before its own: lines with turns; the first is used. Repeatable.",
        ),
    ] = None,
    start_from: Annotated[
        Path | None, typer.Option("--start-from", help="Continue from this head of the target.")
    ] = None,
    answers_per_prompt: Annotated[
        int, typer.Option("--answers-per-prompt", help="For --prompts: at most one is greedy, the rest sampled.")
    ] = 1,
    tokens: Annotated[int, typer.Option("--tokens", help="Answer tokens to synthesise.")] = 2_000_000,
    max_minutes: Annotated[float, typer.Option("--max-minutes", help="Training time; 0: only --epochs count.")] = 0,
    epochs: Annotated[float, typer.Option("--epochs", help="Maximum passes over the data.")] = 4,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Peak learning rate.")] = 1e-3,
    batch_tokens: Annotated[int, typer.Option("--batch-tokens", help="Tokens per training step.")] = 2048,
    vocab: Annotated[int, typer.Option("--vocab", help="Tokens that a head can propose, by frequency; 0: all.")] = 8192,
    depths: Annotated[int, typer.Option("--depths", help="Draft positions that eagle3 learns; heads of medusa.")] = 3,
    layers: Annotated[int, typer.Option("--layers", help="Layers of a draft model.")] = 4,
    exit_layer: Annotated[
        int, typer.Option("--exit-layer", help="Layers of the target that early_exit runs; 0: half of them.")
    ] = 0,
    sequences: Annotated[int, typer.Option("--sequences", help="Conversations generated at once.")] = 64,
    threads: Annotated[int, typer.Option("--threads", help="0: the cores of this process.")] = 0,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:N or auto.")] = "cpu",
    seed: Annotated[int, typer.Option("--seed")] = 0,
    work: Annotated[
        Path | None, typer.Option("--work", help="Folder for the state of a run that may continue.")
    ] = None,
    cache_dir: Annotated[Path | None, typer.Option("--cache-dir", help="Cache folder.")] = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Train a drafter; after a kill, the same command continues.

    Stages: synthesise conversations with the target, train, evaluate, export. Needs hours
    for a good drafter, minutes (--tokens 20000 --max-minutes 3) for a trial.

    [bold]Examples[/]

      pilotfish train eagle3                                  for the default target

      pilotfish train eagle3 --target MODEL --out my-head --tokens 20000 --max-minutes 3

      pilotfish train eagle3 --prompts prompts.jsonl          from the target's answers to what your users ask

      pilotfish train draft --data conversations.jsonl        from conversations with the target

      pilotfish train eagle3 --target MODEL --from 10.0.0.7:50061 --data conversations.jsonl   the target runs there

      The link to it is secured as security.internal of the configuration (--config, --set) says.

      pilotfish up --set target.drafter.proposer=eagle3 --set target.drafter.lookup=suffix --set
      target.drafter.model=$PWD/my-head
    """
    cache = (cache_dir or Path(default_cache_dir())).expanduser()
    request = TrainingRequest(
        method=method,
        target=target,
        out=out or Path(f"{Path(target).name}-{method}"),
        cache_dir=cache,
        work=work,
        data=tuple(data or ()),
        target_address=target_address or "",
        security=_link_security(config_file, overrides) if target_address else InternalSecurityConfig(),
        prompts=tuple(prompts or ()),
        start_from=start_from,
        answers_per_prompt=answers_per_prompt,
        num_answer_tokens=tokens,
        max_minutes=max_minutes,
        max_epochs=epochs,
        learning_rate=learning_rate,
        batch_tokens=batch_tokens,
        draft_vocab_size=vocab,
        num_depths=depths,
        num_layers=layers,
        exit_layer=exit_layer,
        num_sequences=sequences,
        num_threads=threads,
        seed=seed,
        device=device,
    )
    require("torch", "training")
    pull_with_progress(target, cache)
    # torch takes seconds to import, and the command line is free of it.
    from pilotfish.training.pipeline import run_training

    with TrainProgress(error_console()) as progress:
        result = run_training(request, progress)
    if as_json:
        point = result.point
        report = {
            "folder": str(result.out),
            "mean_acceptance_length": point.mean_acceptance_length,
            "num_draft_tokens": len(point.chained),
        }
        print(json.dumps(report))
        return
    output_console().print(
        f"{result.out}: mean acceptance length {result.point.mean_acceptance_length:.2f} with chains of "
        f"{len(result.point.chained)} on held-out conversations",
        soft_wrap=True,
    )


def _link_security(config_file: Path | None, overrides: list[str] | None) -> InternalSecurityConfig:
    return load_config(config_file, overrides or []).security.internal

"""The README.md of a trained drafter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotfish.training.curve import CurvePoint
from pilotfish.training.data.samples import Sample
from pilotfish.training.request import TrainingRequest
from pilotfish.training.trainee import Trainee


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card is made of."""

    request: TrainingRequest
    target: str
    trainee: Trainee
    train: Sequence[Sample]
    held_out: Sequence[Sample]
    point: CurvePoint


def model_card(facts: CardFacts) -> str:
    """Markdown."""
    request, point = facts.request, facts.point
    return f"""# {facts.target}: {facts.trainee.title}

This is {facts.trainee.description}, trained with Pilotfish to draft for **{facts.target}** and for no other model.
Speculative decoding with it changes how fast the target answers, never what it answers.

## Data
{_data(request)}
{_size(facts.train)} to learn from, {_size(facts.held_out)} held out.

## Training
{_rows({"method": request.method, **facts.trainee.facts, **_training(facts)})}

```
{_command(request)}
```

The course of loss and held-out acceptance is in `curve.csv`.

## Acceptance, held out
Share of positions where the drafted token equals the target's own first choice: alone, given the true tokens before
it, and together with all shallower tokens of the same draft.

| draft token | alone | with all before it |
|---|---|---|
{_acceptance(point)}

A chain of {len(point.chained)} would give {point.mean_acceptance_length:.2f} output tokens a round, the bonus included.
"""


def _data(request: TrainingRequest) -> str:
    if request.data:
        served = " What the target computes of them came from a replica that served it." * bool(request.target_address)
        return f"Answers and texts from {', '.join(f'`{path.name}`' for path in request.data)}.{served}"
    before = ""
    if request.prompts:
        names = ", ".join(f"`{path.name}`" for path in request.prompts)
        before = f"Prompts from {names}, up to {request.answers_per_prompt} answers of the target's to each. Then:\n"
    return before + (
        "Self-synthesis: the target wrote the user's turns from its own chat template and answered them, half of the "
        "answers greedily, half at temperature 0.7 and top-p 0.95; four in ten prompts wrap earlier text in a task. "
        "No other data."
    )


def _size(samples: Sequence[Sample]) -> str:
    return f"{len(samples):,} conversations ({sum(sample.num_answer_tokens for sample in samples):,} answer tokens)"


def _training(facts: CardFacts) -> dict[str, str]:
    request, point = facts.request, facts.point
    return {
        "steps": f"{point.step:,} of about {request.batch_tokens:,} tokens ({point.epoch:.1f} epochs)",
        "time": f"{point.minutes:.0f} minutes",
        "learning rate": f"{request.learning_rate:g}, warm-up and cosine; AdamW",
        "loss": "cross entropy with the target's distribution on answer tokens",
        "seed": str(request.seed),
    }


def _rows(facts: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())])


def _command(request: TrainingRequest) -> str:
    source = " ".join(f"--data {path.name}" for path in request.data) or f"--tokens {request.num_answer_tokens}"
    if request.target_address:
        source = f"--from HOST:PORT {source}"
    if request.prompts:
        files = " ".join(f"--prompts {path.name}" for path in request.prompts)
        source = f"{files} --answers-per-prompt {request.answers_per_prompt} {source}"
    if request.start_from is not None:
        source += f" --start-from {request.start_from}"
    if request.exit_layer:
        source += f" --exit-layer {request.exit_layer}"
    limit = f" --max-minutes {request.max_minutes:g}" if request.max_minutes else ""
    return (
        f"pilotfish train {request.method} --target {request.target} {source} --epochs {request.max_epochs:g}{limit} "
        f"--seed {request.seed} --out {request.out.name}"
    )


def _acceptance(point: CurvePoint) -> str:
    pairs = zip(point.agreement, point.chained, strict=True)
    return "\n".join(f"| {depth} | {alone:.3f} | {chained:.3f} |" for depth, (alone, chained) in enumerate(pairs, 1))

"""Why a drafter's tokens are not accepted more often: experiments, and what the answers say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from pilotfish.config import Config
from pilotfish.config.shipped_heads import head_folder
from pilotfish.drafter_registry import DRAFTERS, Needs
from pilotfish.drafters.eagle3.checkpoint import load_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.examine.acceptance import Acceptance, acceptance_of
from pilotfish.examine.drafted_answer import DraftedAnswer
from pilotfish.examine.drafters import NamedDrafter
from pilotfish.examine.faults.head_experiments import AS_SERVED, find_fault, read_texts, share_right
from pilotfish.examine.faults.suspicions import least_gain, suspicions
from pilotfish.examine.rehearsal import Question
from pilotfish.examine.result import Finding
from pilotfish.models.loading import load_model

_MAX_TEXTS = 24
"""Answers that experiments look at."""
_TEMPLATE = 0.75
"""Share of the acceptance with prompts written otherwise below which the template is at fault: answers to those are
other texts, easier or harder by themselves (the Medusa heads that come with Pilotfish: 0.82)."""
_ROUNDED = ("int8", "int4", "fp8")


def diagnose(
    config: Config,
    drafter: NamedDrafter,
    questions: Sequence[Question],
    answers: Sequence[DraftedAnswer],
    max_context_tokens: int = 0,
    *,
    is_explained: bool = False,
) -> Iterator[Finding]:
    """What is wrong with a drafter that was trained; a lookup does what it can. config: with this drafter.

    max_context_tokens: of a draft model; 0: nobody knows. is_explained: a cause is known, of which differences between
    answers may come; they are looked at where there is none.
    """
    if DRAFTERS[drafter.kind].needs is Needs.TEXT:
        return
    if drafter.kind == "eagle3" and config.target.tensor_parallel_size == 1:
        # A target in ranks fits no process, and other heads look at what leaves the last layer alone.
        head, findings = _examine_head(config, questions, answers)
        max_context_tokens = head.config.max_position_embeddings
        yield from findings
        is_explained = is_explained or bool(findings)
    if not is_explained:
        yield from suspicions(answers, max_context_tokens)


def _examine_head(
    config: Config, questions: Sequence[Question], answers: Sequence[DraftedAnswer]
) -> tuple[Eagle3Head, list[Finding]]:
    target = config.target
    loaded = load_model(target.model, cache_dir=Path(config.cache_dir), adapter=target.lora, dtype=torch.bfloat16)
    num_layers = int(loaded.model.config.get_text_config().num_hidden_layers)
    head = load_eagle3(head_folder(target.drafter.model), num_target_layers=num_layers)
    greedy = [pair for pair in zip(questions, answers, strict=True) if pair[1].temperature == 0][:_MAX_TEXTS]
    texts = read_texts(
        loaded.model, [((*asked.token_ids, *own.token_ids), len(asked.token_ids)) for asked, own in greedy]
    )
    findings = [find_fault(head, loaded.model, texts)]
    # What a service has sampled is not what its target would choose.
    is_own_choice = not any(asked.answer for asked, _ in greedy)
    if target.engine.quantization in _ROUNDED and is_own_choice:
        embed = head.embed_tokens or loaded.model.get_input_embeddings()
        unrounded = share_right(head, embed, texts, AS_SERVED, of_target=True)
        served = acceptance_of([answer for _, answer in greedy], 1)
        findings.append(rounding_fault(served, unrounded, target.engine.quantization))
    return head, [finding for finding in findings if finding is not None]


def rounding_fault(served: Acceptance, unrounded: float, quantization: str) -> Finding | None:
    """Whether the head was trained for the target before it was rounded. unrounded: share of first drafts that are
    that target's own."""
    if not served.rates or unrounded < served.rates[0] + least_gain(served.num_positions):
        return None
    return Finding(
        "the target is rounded otherwise than when the drafter was trained",
        f"{served.rates[0]:.0%} of first drafts are accepted with target.engine.quantization {quantization}; of the "
        f"target without it {unrounded:.0%} would be",
        "Train the head on the target as it is served (`pilotfish train eagle3 --from HOST:PORT --start-from`), or "
        "round less",
    )


def template_fault(served: Acceptance, other: Acceptance, how: str) -> Finding | None:
    """Whether prompts are written otherwise than when the drafter was trained. other: with prompts written as `how`
    says."""
    least = least_gain(min(served.num_positions, other.num_positions))
    if (
        not served.rates
        or not other.rates
        or other.rates[0] < max(served.rates[0] + least, served.rates[0] / _TEMPLATE)
    ):
        return None
    return Finding(
        "the chat template differs from training",
        f"{served.rates[0]:.0%} of first drafts are accepted as prompts are written now, {other.rates[0]:.0%} {how}",
        "Serve the template that the drafter was trained with (orchestrator.chat_template), or train it with this one "
        "(`pilotfish train ... --prompts`, on the folder with this template)",
    )

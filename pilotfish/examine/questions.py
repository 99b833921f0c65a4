"""What an examination asks the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pilotfish.bench.prompts import Prompt
from pilotfish.chat import ChatMessage
from pilotfish.config import Config
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.errors import ConfigError
from pilotfish.examine.drafters import NamedDrafter
from pilotfish.examine.recent import RecentRequests
from pilotfish.examine.rehearsal import Question
from pilotfish.examine.service.answers import AskedService
from pilotfish.models.store.generation_config import sampling_defaults
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.planning.planner import ROUND_TRIP_S
from pilotfish.types import Grammar, GrammarKind, SamplingParams


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is examined, and on what."""

    config: Config
    """Its target, and whatever the drafters' engines take of it."""
    drafters: Sequence[NamedDrafter]
    prompts: Sequence[Prompt]
    max_tokens: int = 64
    """Tokens of an answer."""
    num_draft_tokens: int = 8
    """Tokens of a draft, at most."""
    temperature: float = 0.7
    """Temperature of a second answer to each prompt; 0: there is none."""
    recent: RecentRequests | None = None
    """What services were asked and answered of late, in place of the prompts; None: the target answers the prompts."""
    service: AskedService | None = None
    """A running service that has answered the prompts; None: the target does, here."""
    round_trip_s: float = ROUND_TRIP_S
    """See MeasuredRoundCosts."""
    schema: str = ""
    """JSON schema that every answer follows; empty: none."""


def recent_questions(core: EngineCore, order: Order, recent: RecentRequests) -> list[Question]:
    """The questions that the target has room for. Raises ConfigError if there is none."""
    limit = _max_prompt_tokens(order, core)
    fitting = [each for each in recent.questions if len(each.token_ids) <= limit]
    if not fitting:
        raise ConfigError(
            f"the target takes prompts of {max(0, limit)} tokens beside answers of {order.max_tokens}, and those of "
            "all recent requests are longer: give it the services' max_context_tokens, or take a smaller --max-tokens"
        )
    return fitting


def served_questions(core: EngineCore, order: Order, service: AskedService) -> list[Question]:
    """The prompts with the service's answers to them. Raises ConfigError where the target here is another."""
    default = _default_sampling(order, Tokenizer.load(Path(core.model.tokenizer_path)), core)
    limit = _max_prompt_tokens(order, core)
    questions = []
    for each in service.answers:
        if max((*each.prompt_ids, *each.token_ids)) >= core.model.vocab_size:
            raise ConfigError(
                f"the service's answers have tokens that {core.model.model_id} here has not: it runs another model of "
                "that name; set target.model to the same"
            )
        if len(each.prompt_ids) > limit:
            raise ConfigError(
                f"a prompt has {len(each.prompt_ids)} tokens, and the target here takes {max(0, limit)} beside answers "
                f"of {order.max_tokens}: set the service's max_context_tokens, or take a smaller --max-tokens"
            )
        sampling = msgspec.structs.replace(default, seed=each.seed, temperature=each.temperature)
        if sampling.is_greedy and not sampling.has_penalties:
            sampling = msgspec.structs.replace(sampling, num_logprobs=1)  # says what the target here would choose
        questions.append(Question(each.category, each.prompt_ids, sampling, each.token_ids))
    return questions


def questions_of(core: EngineCore, order: Order, *, template: str, uses_template: bool = True) -> list[Question]:
    """Each prompt, as a chat where the model has a template: greedily, and all once more sampled; else as the model's
    generation_config.json says.

    template: a file in place of the model's own. Raises ConfigError for a prompt that leaves no room for an answer.
    """
    tokenizer = Tokenizer.load(Path(core.model.tokenizer_path), template)
    default = _default_sampling(order, tokenizer, core)
    grammar = Grammar(GrammarKind.JSON_SCHEMA, order.schema) if order.schema else None
    limit = _max_prompt_tokens(order, core)
    questions = []
    for temperature in (0.0, *([order.temperature] if order.temperature else [])):
        for seed, prompt in enumerate(order.prompts):
            text = (
                tokenizer.apply_chat_template((ChatMessage("user", prompt.text),))
                if uses_template and tokenizer.chat_template
                else tokenizer.encode(prompt.text)
            )
            if len(text) > limit:
                raise ConfigError(
                    f"the prompt {prompt.text[:60]!r}... has {len(text)} tokens; beside answers of {order.max_tokens} "
                    f"the target takes {max(0, limit)}: take a shorter one, or a smaller --max-tokens"
                )
            sampling = msgspec.structs.replace(default, seed=seed, temperature=temperature, grammar=grammar)
            if sampling.has_penalties or grammar is not None:
                sampling = msgspec.structs.replace(sampling, num_logprobs=1)  # says what they change
            questions.append(Question(prompt.category, tuple(text), sampling))
    return questions


def _default_sampling(order: Order, tokenizer: Tokenizer, core: EngineCore) -> SamplingParams:
    """As a service samples what says nothing of it, up to the model's end tokens."""
    folder = Path(core.model.tokenizer_path)
    own = sampling_defaults(folder) if order.config.orchestrator.generation_config == "auto" else {}
    return msgspec.structs.replace(SamplingParams(stop_token_ids=tuple(sorted(tokenizer.eos_token_ids))), **own)


def _max_prompt_tokens(order: Order, core: EngineCore) -> int:
    """Beside an answer and the draft behind its last token."""
    return core.model.max_context_tokens - order.max_tokens - order.num_draft_tokens - 1

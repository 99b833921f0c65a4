"""Configuration of speculation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from pilotfish.config.fields import STRICT, Share, require, yaml_word
from pilotfish.config.steps import StepsConfig
from pilotfish.drafter_registry import LOOKUPS

if TYPE_CHECKING:
    LookupName: TypeAlias = str
else:
    LookupName = Literal["none", *LOOKUPS]


@dataclass(frozen=True, kw_only=True)
class SpeculationConfig:
    """Defaults of speculation; a request may choose mode, proposer and draft length."""

    __pydantic_config__ = STRICT

    mode: Annotated[Literal["auto", "off", "on"], BeforeValidator(yaml_word)] = "auto"
    """`auto`: draft while that is measured to be faster. `on`: in every round. `off`: never."""
    num_speculative_tokens: Literal["auto"] | PositiveInt = "auto"
    """Draft tokens per round, or depth of a draft tree; the maximum in mode `auto`. `auto`: 5, with the draft pool as
    many as 8."""
    proposer: str = "auto"
    """`auto`: the drafter in the target, or the draft pool if that does more than look up; of both, the
    [faster](controller.md#which-drafter); without either, the lookup of `draft.proposer`. `draft`: the pool. `ngram`,
    `suffix`: a lookup in the orchestrator. Others: the drafter in the target."""
    lookup: LookupName = "none"
    """A lookup in the orchestrator [before the draft pool](proposers.md#a-lookup-before-another-drafter). In the
    target: `target.drafter.lookup`."""
    lookup_tokens: NonNegativeInt = 524288
    """Maximum tokens that lookups in the orchestrator [index at once](proposers.md#memory)."""
    tree_nodes: Literal["auto"] | Annotated[int, Field(ge=0, le=63)] = "auto"
    """Maximum draft tokens in a tree (SGLang's speculative_num_draft_tokens). 0: chains. `auto`: in the target as many
    as cost little, in the pool [those that are worth their rows](proposers.md#trees-from-the-pool). With another number
    the pool drafts nothing ahead."""
    tree_branching: PositiveInt = 4
    """Candidates per node, and nodes expanded per level (SGLang's speculative_eagle_topk)."""
    draft_ahead: Annotated[Literal["auto", "off", "on"], BeforeValidator(yaml_word)] = "auto"
    """[Draft for the likeliest outcomes](drafting-ahead.md) while the target verifies. `auto`: if that shortens
    rounds."""
    draft_ahead_tokens: Annotated[int, Field(ge=0, le=256)] = 60
    """Maximum draft tokens made ahead per round, over all outcomes; 0: off."""
    draft_deadline_ms: NonNegativeFloat = 0
    """How long a round waits for a proposal. 0: as long as the drafts may save ([rule](failures.md))."""
    decode_run_tokens: PositiveInt = 16
    """Plain tokens between two decisions while speculation is off; more from 64 sequences per replica on."""
    num_speculative_tokens_per_batch_size: tuple[tuple[int, int, int], ...] = ()
    """[first, last, K] allows at most K draft tokens while first to last sequences decode on a replica. Not for a
    request that itself says `on`."""
    disable_by_batch_size: NonNegativeInt = 0
    """No speculation while this many sequences decode on a replica; 0: no limit. Not for a request that itself says
    `on`."""
    disable_by_batch_size_hysteresis: Literal["auto"] | NonNegativeInt = "auto"
    """Speculation resumes below disable_by_batch_size minus this. `auto`: a quarter of it, so that 8 resumes below
    6."""
    first_chunk_tokens: PositiveInt = 1
    """Tokens of an answer that are decoded plainly before speculation begins, in every mode."""
    min_acceptance_rate: Share = 0.0
    """For `auto`: no speculation, except probes, while a smaller share of first draft tokens is accepted. Not for
    drafters in the target."""
    min_output_tokens: PositiveInt = 10
    """For `auto`: no speculation for requests with a smaller max_tokens, and [less](controller.md#operators-rules)
    where answers are short."""
    allow_lossy: bool = False
    """Requests may ask for [lossy](lossy.md) answers, which need not be the target's own."""
    steps: StepsConfig = field(default_factory=StepsConfig)
    """Steps of reasoning."""

    @property
    def default_draft_tokens(self) -> int:
        """Draft tokens of a round that drafts whatever is measured."""
        return 5 if self.num_speculative_tokens == "auto" else self.num_speculative_tokens

    @property
    def max_draft_tokens(self) -> int:
        """Draft tokens of a round at most, where the controller measures how many are worth while."""
        return 8 if self.num_speculative_tokens == "auto" else self.num_speculative_tokens

    @property
    def limits_batch_size(self) -> bool:
        """Whether there is a rule by the number of sequences that decode on a replica."""
        return bool(self.disable_by_batch_size or self.num_speculative_tokens_per_batch_size)

    @property
    def resumes_below_batch_size(self) -> float:
        """After disable_by_batch_size. A single sequence may always draft again."""
        limit, hysteresis = self.disable_by_batch_size, self.disable_by_batch_size_hysteresis
        return max(2, limit - (limit / 4 if hysteresis == "auto" else hysteresis))

    def __post_init__(self) -> None:
        for first, last, num_draft_tokens in self.num_speculative_tokens_per_batch_size:
            require(
                1 <= first <= last and num_draft_tokens >= 0,
                "speculation.num_speculative_tokens_per_batch_size must hold [first, last, K] with 1 <= first <= last",
            )

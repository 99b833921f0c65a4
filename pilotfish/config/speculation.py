"""Configuration of speculation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator

from pilotfish.config.fields import STRICT, require, yaml_word


@dataclass(frozen=True, kw_only=True)
class SpeculationConfig:
    """Defaults of speculation; a request may ask otherwise within the limits."""

    __pydantic_config__ = STRICT

    mode: Annotated[Literal["auto", "off", "on"], BeforeValidator(yaml_word)] = "auto"
    """`auto`: drafts where they make the answer sooner, as measured. `on`: always. `off`: never."""
    num_speculative_tokens: int = 5
    """Draft tokens a round (vLLM's name)."""
    proposer: str = "draft"
    """`draft`: the draft pool. `ngram`, `suffix`: looked up in the orchestrator. `eagle3`, `medusa`, `early_exit`:
    the drafter in the target (`target.drafter`)."""
    lookup: Literal["none", "ngram", "suffix"] = "none"
    """Before the draft pool: it is asked only where this lookup in the orchestrator is not confident
    (`draft.hybrid_min_accepted_tokens`), which saves the round trip as well."""
    tree_nodes: int = 0
    """Draft tokens of a round at most where the proposer can branch: a tree, num_speculative_tokens deep, of the
    likeliest continuations (SGLang's speculative_num_draft_tokens). 0: chains."""
    tree_branching: int = 4
    """Candidates of a node, and nodes that each level of a tree expands (SGLang's speculative_eagle_topk)."""
    draft_ahead: Annotated[Literal["auto", "off", "on"], BeforeValidator(yaml_word)] = "auto"
    """While the target verifies, the draft pool drafts for the likeliest outcomes. `auto`: where that makes rounds
    shorter as measured, and as far as the pool has time; a drafter that shares the target's cores may lose by it.
    Chains only: of a tree nothing is drafted ahead."""
    draft_ahead_tokens: int = 60
    """Draft tokens a round that are made ahead at most, over all outcomes (12 of 5 tokens each, which foresee about
    four of five rounds at an acceptance of 0.8); 0 is off."""
    draft_deadline_ms: float = 0
    """A proposal later than this is ignored for its round; 0 takes one measured decode step per draft token, or three
    times what drafts take under load."""
    decode_run_tokens: int = 16
    """Tokens of one Decode run: the controller decides again this often while speculation is off. Twice as many at 64
    sequences of this orchestrator on a replica, 3 times at 96, up to 8 times at 256."""
    num_speculative_tokens_per_batch_size: tuple[tuple[int, int, int], ...] = ()
    """[first, last, K]: at most K draft tokens while first to last sequences decode on a replica (vLLM's name), in
    mode `auto`. Empty: as measured. Sequences in no range have no such limit."""
    disable_by_batch_size: int = 0
    """Mode `auto` is off while so many sequences or more decode on a replica (vLLM's name); 0: as measured."""
    disable_by_batch_size_hysteresis: int = 8
    """It is on again once fewer than disable_by_batch_size minus this many decode, so that it does not flap."""
    min_acceptance_rate: float = 0.0
    """Mode `auto` is off while fewer of the first draft tokens are accepted, but for probes; 0: as measured. It
    does not apply to in-target drafters."""
    min_output_tokens: int = 10
    """Mode `auto` is off for requests of a smaller max_tokens: they end before a drafter that has to read the prompt
    repays it."""

    def __post_init__(self) -> None:
        require(self.num_speculative_tokens >= 1, "speculation.num_speculative_tokens must be at least 1")
        require(0 <= self.tree_nodes <= 63, "speculation.tree_nodes must be between 0 (chains) and 63")
        require(self.tree_branching >= 1, "speculation.tree_branching must be at least 1")
        require(0 <= self.draft_ahead_tokens <= 256, "speculation.draft_ahead_tokens must be between 0 (off) and 256")
        require(self.draft_deadline_ms >= 0, "speculation.draft_deadline_ms must be at least 0 (0: measured)")
        require(self.decode_run_tokens >= 1, "speculation.decode_run_tokens must be at least 1")
        for first, last, num_draft_tokens in self.num_speculative_tokens_per_batch_size:
            require(
                1 <= first <= last and num_draft_tokens >= 0,
                "speculation.num_speculative_tokens_per_batch_size must hold [first, last, K] with 1 <= first <= last",
            )
        require(self.disable_by_batch_size >= 0, "speculation.disable_by_batch_size must be at least 0 (0: measured)")
        require(
            self.disable_by_batch_size_hysteresis >= 0,
            "speculation.disable_by_batch_size_hysteresis must be at least 0",
        )
        require(0 <= self.min_acceptance_rate <= 1, "speculation.min_acceptance_rate must be between 0 and 1")
        require(self.min_output_tokens >= 1, "speculation.min_output_tokens must be at least 1")

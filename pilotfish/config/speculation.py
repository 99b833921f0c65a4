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
    num_speculative_tokens: int = 5
    """Draft tokens a round (vLLM's name)."""
    proposer: str = "draft"
    """`draft`: the draft pool. `ngram`, `suffix`: looked up in the orchestrator. `eagle3`, `medusa`, `early_exit`:
    the drafter beside the target (`target.self_drafter`)."""
    lookup: Literal["none", "ngram", "suffix"] = "none"
    """Before the draft pool: it is asked only where this lookup in the orchestrator is not confident
    (`draft.hybrid_min_accepted_tokens`), which saves the round trip as well."""
    tree_nodes: int = 0
    """Draft tokens of a round at most where the proposer can branch: a tree, num_speculative_tokens deep, of the
    likeliest continuations (SGLang's speculative_num_draft_tokens). 0: chains."""
    tree_branching: int = 4
    """Candidates of a node, and nodes that each level of a tree expands (SGLang's speculative_eagle_topk)."""
    draft_deadline_ms: float = 0
    """A proposal later than this is ignored for its round; 0 takes one measured decode step per draft token."""
    decode_run_tokens: int = 16
    """Tokens of one Decode run: the orchestrator looks again this often while speculation is off."""

    def __post_init__(self) -> None:
        require(self.num_speculative_tokens >= 1, "speculation.num_speculative_tokens must be at least 1")
        require(0 <= self.tree_nodes <= 63, "speculation.tree_nodes must be between 0 (chains) and 63")
        require(self.tree_branching >= 1, "speculation.tree_branching must be at least 1")
        require(self.draft_deadline_ms >= 0, "speculation.draft_deadline_ms must be at least 0 (0: measured)")
        require(self.decode_run_tokens >= 1, "speculation.decode_run_tokens must be at least 1")

"""Configuration of the draft service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from pilotfish.config.engine import EngineConfig
from pilotfish.config.fields import STRICT, OptionalPort, Port, Share, require
from pilotfish.config.learning import LearningConfig
from pilotfish.config.paths import HeadOrPath, ModelOrPath
from pilotfish.messages import MAX_DRAFT_CANDIDATES


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """The draft service."""

    __pydantic_config__ = STRICT

    proposer: str = "auto"
    """`suffix` (suffix decoding), `ngram` (prompt lookup), `model` (a causal LM), `eagle3`
    or `medusa` (heads on the target's hidden states). `auto`: `suffix`, which needs no draft service where there is
    one orchestrator (see [proposers](proposers.md#choosing-one))."""
    model: ModelOrPath = ""
    """Draft model of proposer `model`: catalogue name, hub id, folder or GGUF file. Empty: the target's, whose
    tokenizer the other proposers need."""
    vocabulary: Literal["same", "auto", "intersection", "text"] = "same"
    """How a draft model drafts that has another tokenizer than target.model
    ([proposers](proposers.md#another-vocabulary)). `same`: not at all. `intersection`: with the tokens that both have.
    `text`: as text, tokenised anew. `auto`: the first where each has 0.6 of the other's tokens of a text, else the
    second."""
    targets: tuple[ModelOrPath, ...] = ()
    """Models beside target.model whose tokenizers the draft model is translated to, so that one pool drafts for targets
    of several families: a peer is known by its tokenizer. Those with the draft model's own are served in any case.
    Needs a `vocabulary` other than `same`."""
    head: HeadOrPath = ""
    """Heads of `eagle3` or `medusa`: a folder, or the name of one that comes with Pilotfish. Empty: the one for the
    target."""
    host: str = "127.0.0.1"
    """As target.host."""
    port: Port = 50062
    """As target.port."""
    metrics_port: OptionalPort = -1
    """As target.metrics_port."""
    num_replicas: NonNegativeInt = 1
    """Replicas under Ray Serve; 0: no draft pool."""
    prompt_lookup_min: int = 2
    """Shortest n-gram looked up, in tokens (vLLM's name)."""
    prompt_lookup_max: int = 4
    """Longest n-gram looked up, tried first (vLLM's name)."""
    lookup_min_probability: Share = 0.08
    """A lookup extends its draft while the estimated probability that all of it is accepted is at least this."""
    suffix_shared_tokens: int = 65536
    """Tokens of other requests' recent outputs that `suffix` searches, some 500 bytes each. 0 isolates requests;
    with sharing, timing can reveal that another request of the same `cache_salt` got a similar answer."""
    lookup_min_accepted_tokens: NonNegativeFloat = 1.0
    """A lookup before another drafter is used if it expects at least this many accepted tokens, else the other is."""
    top_m: Annotated[int, Field(ge=1, le=MAX_DRAFT_CANDIDATES)] = 32
    """Candidates kept per draft token, for rejection sampling; at most 1024."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    """Engine of the draft model or head."""
    learning: LearningConfig = field(default_factory=LearningConfig)
    """Learning from the traffic."""

    @property
    def drafter(self) -> str:
        """The proposer, with `auto` made concrete."""
        return "suffix" if self.proposer == "auto" else self.proposer

    def __post_init__(self) -> None:
        require(
            1 <= self.prompt_lookup_min <= self.prompt_lookup_max,
            "draft.prompt_lookup_min must be at least 1 and at most prompt_lookup_max",
        )
        require(
            self.suffix_shared_tokens == 0 or self.suffix_shared_tokens >= 256,
            "draft.suffix_shared_tokens must be 0 (nothing is shared) or at least 256",
        )

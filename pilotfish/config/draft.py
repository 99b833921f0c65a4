"""Configuration of the draft service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from pilotfish.config.engine import EngineConfig
from pilotfish.config.fields import STRICT, Host, OptionalPort, Port, Share, require
from pilotfish.config.learning import LearningConfig
from pilotfish.config.paths import HeadOrPath, ModelOrPath
from pilotfish.messages import MAX_DRAFT_CANDIDATES


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """The draft service."""

    __pydantic_config__ = STRICT

    proposer: str = "auto"
    """`suffix`, `ngram` (lookups), `model` (a causal LM), `eagle3` or `medusa` (heads);
    [which](proposers.md#choosing-one). `auto`: `suffix`, which needs no draft service where there is one
    orchestrator."""
    model: ModelOrPath = ""
    """Draft model of proposer `model`: catalogue name, hub id, folder or GGUF file. Empty: the target's."""
    vocabulary: Literal["same", "auto", "intersection", "text"] = "same"
    """How a draft model with [another tokenizer](proposers.md#another-vocabulary) than target.model drafts. `same`: not
    at all."""
    targets: tuple[ModelOrPath, ...] = ()
    """Models beside target.model to whose tokenizers the draft model is translated. Needs a `vocabulary` other than
    `same`."""
    head: HeadOrPath = ""
    """Heads of `eagle3` or `medusa`: a folder, or the name of one that comes with Pilotfish. Empty: those for the
    target."""
    host: Host = "127.0.0.1"
    """As target.host."""
    port: Port = 50062
    """As target.port."""
    metrics_port: OptionalPort = -1
    """As target.metrics_port."""
    num_replicas: NonNegativeInt = 1
    """Replicas under Ray Serve; 0: no draft pool."""
    prompt_lookup_min: int = 2
    """Shortest n-gram looked up, in tokens."""
    prompt_lookup_max: int = 4
    """Longest n-gram looked up, tried first."""
    lookup_min_probability: Share = 0.08
    """A lookup extends its draft while all of it is accepted with at least this probability."""
    suffix_shared_tokens: int = 65536
    """Tokens of other requests' recent outputs that `suffix` searches, some 500 bytes each. [0 isolates
    requests](proposers.md#outputs-of-other-requests)."""
    lookup_min_accepted_tokens: NonNegativeFloat = 1.0
    """A lookup before another drafter is used if it expects so many accepted tokens."""
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

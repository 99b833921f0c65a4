"""Lookups: draft tokens copied from where a sequence's last tokens occurred before. No model, no torch.

The draft service, the orchestrator and the engine use the same indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pilotfish.config import DraftConfig
from pilotfish.drafter_registry import room
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution, TreeRequest

_ESCAPE_WEIGHT = 2.2
"""Fitted to 143,000 positions of SmolLM2-135M-Instruct's own answers, see docs/proposers.md."""


@dataclass(frozen=True, slots=True)
class LookupDraft:
    """What a lookup came to; nothing at all is an ordinary outcome."""

    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    """A tree's parents, as in Proposal; empty for a chain."""
    probabilities: tuple[float, ...] = ()
    """For each token, the estimated chance that it and all before it on its path are accepted."""

    @property
    def expected_accepted_tokens(self) -> float:
        """Tokens that a verification will accept, as estimated."""
        return sum(self.probabilities)

    def promises(self, num_accepted_tokens: float) -> bool:
        """Whether there is a draft that is expected to have at least so many tokens accepted."""
        return bool(self.token_ids) and self.expected_accepted_tokens >= num_accepted_tokens


class LookupIndex(Protocol):
    """The tokens of one sequence, and what may follow them."""

    def __len__(self) -> int:
        """Tokens held."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The tokens held; not to be changed."""

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens at the end."""

    def truncate(self, length: int) -> None:
        """Forget the tokens from index `length` on; as if they had never been appended.

        Raises: ValueError when fewer than `length` tokens are held.
        """

    def propose(self, max_depth: int, tree: TreeRequest | None = None) -> LookupDraft:
        """A draft of at most max_depth tokens, one after another, that may follow the tokens held.

        A chain; with `tree` a tree within its limits, if the index can branch.
        """

    def finish(self, num_prompt_tokens: int) -> None:
        """The sequence has ended: what follows its first num_prompt_tokens may serve others. Called once."""


MakeIndex = Callable[[str], LookupIndex]
"""Makes a sequence's index from its cache_salt: nothing of one salt is found by a sequence of another."""
Lookup = Callable[[DraftConfig], MakeIndex]
"""Called once in a process: what its indexes share is made then."""


def lookup_of(name: str) -> Lookup:
    """The lookup of that name in the registry."""
    lookup: Lookup = room(name, "draft").lookup
    return lookup


def continuation_probability(count: int, num_occurrences: int, num_matched_tokens: int) -> float:
    """The chance that a token follows which did so `count` times after `num_occurrences` of the same context.

    Like an escape probability in prediction by partial matching: the longer the context that matched,
    the less one occurrence can mislead. num_matched_tokens: length of the context, at least 1.
    """
    return count / (num_occurrences + _ESCAPE_WEIGHT / num_matched_tokens)


def needs_draft_probs(sampling: SamplingParams) -> bool:
    """Whether the target needs the draft distributions to decide (rejection sampling)."""
    return sampling.acceptance is AcceptanceMode.REJECTION and not sampling.is_greedy


def one_hot_probs(token_ids: Sequence[int], sampling: SamplingParams) -> tuple[SparseDistribution, ...]:
    """The distributions of looked up tokens, where they are needed: not sampled, all probability is on each."""
    if not needs_draft_probs(sampling):
        return ()
    return tuple(SparseDistribution((token_id,), (1.0,)) for token_id in token_ids)

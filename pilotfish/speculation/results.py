"""What drafting and verifying come to. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pilotfish.types import SparseDistribution, TokenLogprobs


@dataclass(frozen=True, slots=True)
class DraftToken:
    """One draft token."""

    token_id: int
    probs: SparseDistribution | None
    """What the token was sampled from, in rejection mode; else None."""


class Outcome(msgspec.Struct, frozen=True):
    """The accepted drafts and the one token after them."""

    path: tuple[int, ...]
    """Indices of the accepted drafts, in the order of the text."""
    token_ids: tuple[int, ...]
    """The output: num_accepted + 1 tokens."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per token when the request asks for them."""

    @property
    def num_accepted(self) -> int:
        return len(self.path)

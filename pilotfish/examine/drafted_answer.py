"""An answer of the target, with what a drafter drafted after each of its tokens. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pilotfish.examine.drafted_tree import DraftedTree
from pilotfish.speculation.common_prefix import num_common_tokens


@dataclass(frozen=True)
class RehearsedDraft:
    """A chain."""

    token_ids: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    """Probabilities that the target comes to each token, as the drafter sees them; empty: it does not say."""
    tree: DraftedTree | None = None
    """What it drafts where it may branch, of which the tokens are a part; None: it cannot, or was not asked."""

    def num_common(self, token_ids: Sequence[int]) -> int:
        """Tokens of the chain that are a text's own, up to the first that is not."""
        return num_common_tokens(self.token_ids, token_ids)


@dataclass(frozen=True)
class DraftedAnswer:
    """The drafts stand on the target's own tokens, whatever became of earlier drafts: teacher forcing."""

    category: str
    temperature: float
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    is_whole: bool
    """Whether it ended by itself: nothing comes after its last token."""
    shaped: tuple[bool, ...] = ()
    """Whether each token is another than the model's likeliest one: in a greedy answer, before penalties and grammar.
    Empty: nobody looked."""
    drafts: Mapping[int, RehearsedDraft] = field(default_factory=dict)
    """Drafts by the number of the answer's tokens before them, from 1 on: the first token comes from the prompt's
    step."""

    def draft_after(self, num_tokens: int) -> RehearsedDraft:
        """What was drafted after so many of its tokens."""
        return self.drafts.get(num_tokens, RehearsedDraft())

    def num_accepted(self, num_tokens: int) -> int:
        """Tokens of the draft after so many that are the answer's own, up to the first that is not."""
        return self.draft_after(num_tokens).num_common(self.token_ids[num_tokens:])

    def is_known(self, num_tokens: int, num_draft_tokens: int) -> bool:
        """Whether the answer says what becomes of so many drafts there: it may have been cut off before."""
        return self.is_whole or num_tokens + num_draft_tokens < len(self.token_ids)

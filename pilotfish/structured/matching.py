"""Where a sequence stands in its grammar, and what may come next."""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer

from pilotfish.structured.forcing import ForcedText, few_tokens, forced_text
from pilotfish.structured.grammar import one_line


class GrammarMatcher:
    """The grammar's state after a sequence's output, which grows and shrinks at the end.

    The matcher itself is moved only when a mask is asked for, from wherever it was: along a chain of
    drafts, from branch to branch of a tree, and back when drafts are rejected.
    """

    __slots__ = (
        "_consumed",
        "_forced",
        "_forced_at",
        "_masks",
        "_matcher",
        "_num_certain",
        "_num_prompt_tokens",
        "_output",
        "vocabulary",
    )

    def __init__(
        self,
        matcher: LLMatcher,
        num_prompt_tokens: int,
        output_token_ids: Sequence[int] = (),
        *,
        vocabulary: LLTokenizer,
    ) -> None:
        """matcher: stands at the grammar's start, and belongs to this object from now on. vocabulary: its tokens."""
        self.vocabulary = vocabulary
        self._matcher = matcher
        self._num_prompt_tokens = num_prompt_tokens
        self._output = list(output_token_ids)
        self._consumed: list[int] = []
        """Tokens that the matcher has taken."""
        self._num_certain = 0
        """Consumed tokens, from the first on, that are output."""
        self._forced_at = 0
        """Output tokens behind which `_forced` was found."""
        self._forced = ForcedText()
        self._masks: dict[tuple[int, ...], bytes | None] = {}
        """Masks by the drafts after the output."""

    @property
    def fault(self) -> str | None:
        """Why the matcher gave up: it then allows everything."""
        return one_line(self._matcher.get_error()) if self._matcher.is_error() else None

    def append(self, token_ids: Sequence[int]) -> None:
        """Add output tokens at the end."""
        self._output.extend(token_ids)
        self._masks.clear()

    def truncate(self, length: int) -> None:
        """Keep the first length tokens, prompt included."""
        del self._output[max(0, length - self._num_prompt_tokens) :]
        self._num_certain = min(self._num_certain, len(self._output))
        self._forced_at = 0
        self._forced = ForcedText()
        self._masks.clear()

    def allowed(self, draft_token_ids: Sequence[int] = ()) -> bytes | None:
        """What may follow output and drafts: bit i % 8 of byte i // 8 for token i.

        None when the grammar forbids a token before, or has ended: what follows is of no use.
        """
        path = tuple(draft_token_ids)
        if path not in self._masks:
            self._masks[path] = self._matcher.compute_bitmask() if self._move_to(path) else None
            if self._matcher.is_error():
                self._masks[path] = None
        return self._masks[path]

    def few_allowed(self, draft_token_ids: Sequence[int]) -> list[bytes]:
        """The texts of the tokens that may follow output and drafts; none where there are many, or none may."""
        mask = self.allowed(draft_token_ids)
        return [] if mask is None else [self.vocabulary.decode_bytes([token_id]) for token_id in few_tokens(mask)]

    def forced(self, *, max_bytes: int, max_s: float) -> ForcedText:
        """What the grammar forces behind the output, within these bounds; see forced_text."""
        known = self._forced.behind(self.vocabulary.decode_bytes(self._output[self._forced_at :]))
        if known is None:
            if not self._move_to(()):
                return ForcedText()
            # A copy: what lies far ahead may be too much for the library, and is not to end the answer before.
            known = forced_text(self._matcher.deep_copy(), self.vocabulary, max_bytes=max_bytes, max_s=max_s)
        self._forced_at = len(self._output)
        self._forced = known
        return known

    def _move_to(self, path: Sequence[int]) -> bool:
        """Whether the grammar allows the output and the path."""
        if self._matcher.is_error():
            return False
        wanted = [*self._output[self._num_certain :], *path]
        taken = self._consumed[self._num_certain :]
        num_common = 0
        for mine, other in zip(taken, wanted, strict=False):
            if mine != other:
                break
            num_common += 1
        if num_common < len(taken):
            self._matcher.rollback(len(taken) - num_common)
            del self._consumed[self._num_certain + num_common :]
        if num_common < len(wanted):
            rest = wanted[num_common:]
            self._consumed.extend(rest[: self._matcher.try_consume_tokens(rest)])
        self._num_certain = min(len(self._consumed), len(self._output))
        return len(self._consumed) == len(self._output) + len(path)

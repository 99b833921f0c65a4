"""Drafts that a grammar forces: put behind the tokens of each sequence that follows one, right before a step.

They need no drafter and no round trip, and are beside any other draft: first what is forced, then what a peer drafted
behind it. Whatever they are, they are verified as every draft.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from pilotfish.engine.core.cache.kv_cache import KVCache
from pilotfish.engine.core.draft_costs import DraftCosts
from pilotfish.engine.core.drafts import NOTHING_FORCED, Drafts, ForcedSpan
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import DecodeTask
from pilotfish.speculation.common_prefix import num_common_tokens
from pilotfish.speculation.lookup.index import one_hot_probs
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import SamplingParams

logger = logging.getLogger(__name__)

_CONFIDENCE = 0.98
"""Probability with which the target comes to such a token, once it is at the one before."""
_FREE = 1.05
"""An answer's first step may take so many times as long."""


class ForcedTokens(Protocol):
    """What splits forced text into tokens: the drafter `grammar`."""

    def draft(
        self,
        grammar: GrammarMatcher,
        token_ids: Sequence[int],
        max_tokens: int,
        *,
        is_greedy: bool,
        cache_salt: str = "",
    ) -> ForcedSpan:
        """At most max_tokens tokens of what the grammar forces behind the sequence's token_ids. cache_salt: sequences
        of another one show in nothing."""

    def learn(self, span: ForcedSpan, token_ids: Sequence[int]) -> None:
        """These came in the span's place."""


class _Addition(NamedTuple):
    """What may be put behind a sequence's tokens."""

    sequence: EngineSequence
    task: DecodeTask
    token_ids: tuple[int, ...]


class ForcedDrafts:
    """See the module."""

    def __init__(
        self,
        drafter: ForcedTokens,
        kv_cache: KVCache,
        *,
        max_draft_tokens: int,
        max_context_tokens: int,
        max_logit_rows: int,
        step_s: Callable[[float], float],
    ) -> None:
        """max_draft_tokens: of a sequence. max_logit_rows: of a step. step_s: seconds of a step by its rows."""
        self._drafter = drafter
        self._kv_cache = kv_cache
        self._max_draft_tokens = max_draft_tokens
        self._max_context_tokens = max_context_tokens
        self._max_logit_rows = max_logit_rows
        self._step_s = step_s
        self._costs = DraftCosts()

    def behind(self, sequence: EngineSequence) -> tuple[int, ...]:
        """Tokens that the grammar forces behind the sequence's and that could be output before the last one."""
        grammar, length = sequence.grammar, len(sequence.tokens)
        if grammar is None or not sequence.takes_forced_drafts:
            return ()
        if sequence.forced_at != length:
            room = min(self._max_context_tokens - length, sequence.sampling.max_tokens - sequence.num_output_tokens) - 1
            sequence.forced_at = length
            sequence.forced = NOTHING_FORCED
            if room > 0:
                sequence.forced = self._draft(sequence, grammar, min(room, self._max_draft_tokens))
        return sequence.forced.token_ids

    def _draft(self, sequence: EngineSequence, grammar: GrammarMatcher, max_tokens: int) -> ForcedSpan:
        try:
            return self._drafter.draft(
                grammar,
                sequence.tokens,
                max_tokens,
                is_greedy=sequence.sampling.is_greedy,
                cache_salt=sequence.cache_salt,
            )
        except Exception:
            # Fail open: what a drafter does wrong costs no request.
            logger.exception("what a grammar forces could not be drafted; the sequence goes on without")
            return NOTHING_FORCED

    def before_step(self, sequences: Iterable[EngineSequence]) -> None:
        """Put behind each sequence that decodes what is forced there, as far as it repays its rows."""
        additions: list[_Addition] = []
        num_decoding = num_others = 0
        for sequence in sequences:
            task = sequence.task
            if not isinstance(task, DecodeTask) or sequence.awaits_grammar:
                continue
            num_decoding += 1
            forced = () if task.drafts.tree is not None else self.behind(sequence)
            if not sequence.num_output_tokens:
                forced = forced[: self._num_free(len(forced))]
            if forced:
                additions.append(_Addition(sequence, task, forced))
            else:
                num_others += len(task.drafts)
        if not additions:
            return
        # By what is forced alone: to look at what was drawn before would bend the distribution.
        for addition, length in zip(additions, self._lengths(additions, num_decoding, num_others), strict=True):
            if forced := addition.token_ids[: self._num_places(addition.sequence, length)]:
                addition.task.drafts = joined(addition.task.drafts, forced, addition.sequence.sampling)

    def after_step(self, num_decoded: int, elapsed_s: float) -> None:
        """A step committed num_decoded tokens beside prefills. elapsed_s: its time, without theirs."""
        if num_decoded:
            self._costs.add(num_decoded, elapsed_s, 0, 0.0)

    def learn(self, sequence: EngineSequence, base_length: int, token_ids: Sequence[int]) -> None:
        """The sequence got these behind its first base_length tokens."""
        if sequence.forced_at != base_length or not sequence.forced.places:
            return
        try:
            self._drafter.learn(sequence.forced, token_ids)
        except Exception:
            logger.exception("nothing was learned of how a model splits what a grammar forces")

    def _num_places(self, sequence: EngineSequence, num_drafts: int) -> int:
        """Drafts, at most so many, that the cache holds without taking anything from another sequence."""
        length, pool = len(sequence.tokens), self._kv_cache.pool
        num_drafts = min(num_drafts, pool.num_usable * pool.block_size - length)
        # One without blocks may find its prompt in the cache, and gets them all together.
        if not sequence.block_ids or self._kv_cache.reserve(sequence, length + num_drafts):
            return max(0, num_drafts)
        return max(0, min(num_drafts, len(sequence.block_ids) * pool.block_size - length))

    def _num_free(self, most: int) -> int:
        """Draft tokens, at most so many, for which the first token hardly waits."""
        longest_s = _FREE * self._step_s(1)
        return bisect_right(range(1, most + 1), longest_s, key=lambda more: self._step_s(1 + more))

    def _lengths(self, additions: Sequence[_Addition], num_decoding: int, num_others: int) -> list[int]:
        """How many tokens of each to verify: the first ones of all."""
        places = sorted((place, index) for index, each in enumerate(additions) for place in range(len(each.token_ids)))
        num_rows = max(0, min(len(places), self._max_logit_rows - num_decoding - num_others))
        thresholds = self._costs.thresholds(self._step_s, num_decoding, num_rows, num_rows) if num_rows else None
        if thresholds is not None and thresholds.row_prices:
            num_rows, _ = thresholds.best([_CONFIDENCE ** (place + 1) for place, _ in places[:num_rows]])
        lengths = [0] * len(additions)
        for _, index in places[:num_rows]:
            lengths[index] += 1
        return lengths


def joined(drafts: Drafts, forced: tuple[int, ...], sampling: SamplingParams) -> Drafts:
    """A chain of drafts with what is forced from its first token on; what differs from that is forbidden, or not what
    the model would write, and left out. They may be joined already, in a step that had no room for the sequence.

    In rejection mode all probability is on what is forced, also where it was drafted: what was drawn decides only
    whether more of it follows, which it was drawn given.
    """
    common = num_common_tokens(forced, drafts.token_ids)
    probs = one_hot_probs(forced, sampling)
    if common < len(forced):
        first, end = drafts.forced
        return Drafts(forced, probs, forced=(min(common, first) if first < end else common, len(forced)))
    return replace(drafts, probs=(*probs, *drafts.probs[len(forced) :]), confidences=())

"""A request's lists of tokens in the form that a step wants them. Torch-free."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.types import SamplingParams

MAX_LOGIT = 1e30
"""Far beyond any logit, and a difference of two stays within float32: infinite logits make NaN."""


@dataclass(slots=True)
class EntryTable:
    """Places in rows of logits, flat: entry e is token token_ids[e] of row rows[e]."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    token_ids: array[int] = field(default_factory=lambda: array("q"))

    def add(self, row: int, token_ids: array[int]) -> None:
        """One memory copy."""
        self.rows.extend(array("q", (row,)) * len(token_ids))
        self.token_ids.extend(token_ids)


class TokenLists:
    """The lists of one request (logit_bias, stop_token_ids, bad_words, allowed_token_ids), made ready once per
    sequence: a step that went through the lists themselves would take as long as they are."""

    __slots__ = (
        "_allowed",
        "_bad_endings",
        "_bad_token_ids",
        "_longest_bad_word",
        "_mask",
        "_min_tokens",
        "_stops",
        "bias_values",
        "biased_token_ids",
        "stop_token_ids",
    )

    def __init__(self, sampling: SamplingParams) -> None:
        biases: dict[int, float] = {}
        for token_id, bias in sampling.logit_bias:
            biases[token_id] = biases.get(token_id, 0.0) + bias
        self.biased_token_ids = array("q", biases)
        """Distinct."""
        self.bias_values = array("f", [max(-MAX_LOGIT, min(bias, MAX_LOGIT)) for bias in biases.values()])
        self.stop_token_ids = frozenset(sampling.stop_token_ids)
        self._min_tokens = sampling.min_tokens
        self._stops = array("q", self.stop_token_ids if sampling.min_tokens else ())
        self._bad_token_ids = array("q", {word[0] for word in sampling.bad_words if len(word) == 1})
        self._bad_endings: dict[int, list[tuple[int, ...]]] = {}
        """Longer words by their last token but one."""
        for word in sampling.bad_words:
            if len(word) > 1:
                self._bad_endings.setdefault(word[-2], []).append(word)
        self._longest_bad_word = max(map(len, sampling.bad_words), default=1)
        self._allowed = frozenset(sampling.allowed_token_ids)
        self._mask = b""
        """The longest that was asked for: a grammar's masks in the same step decide how long they are."""

    def add_forbidden_to(
        self, table: EntryTable, row: int, history: TokenHistory, draft_token_ids: Sequence[int]
    ) -> None:
        """Tokens that may not come yet, or not here: as one row of a table."""
        if history.num_output_tokens + len(draft_token_ids) < self._min_tokens:
            table.add(row, self._stops)
        table.add(row, self._bad_token_ids)
        if not self._bad_endings:
            return
        end = history.end(self._longest_bad_word - 1, draft_token_ids)
        words = self._bad_endings.get(end[-1], ()) if end else ()
        table.add(row, array("q", [word[-1] for word in words if end[1 - len(word) :] == word[:-1]]))

    def allows(self, token_ids: Sequence[int]) -> bool:
        """Whether allowed_token_ids holds all of them."""
        return not self._allowed or self._allowed.issuperset(token_ids)

    def allowed_mask(self, num_bytes: int) -> bytes | None:
        """The bits of allowed_token_ids, bit i % 8 of byte i // 8 for token i; None: all are allowed."""
        if not self._allowed:
            return None
        if len(self._mask) < num_bytes:
            bits = np.zeros(8 * num_bytes, dtype=np.bool_)
            bits[[token_id for token_id in self._allowed if token_id < len(bits)]] = True
            self._mask = np.packbits(bits, bitorder="little").tobytes()
        return self._mask[:num_bytes]

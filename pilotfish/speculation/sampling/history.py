"""The tokens before a position, for what looks back at them: penalties, min_tokens, bad_words. Torch-free."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class CountTable:
    """Token counts of many rows, flat: entry e says how often row rows[e] has seen token_ids[e].

    A row lists each token at most once.
    """

    rows: array[int] = field(default_factory=lambda: array("q"))
    token_ids: array[int] = field(default_factory=lambda: array("q"))
    output_counts: array[int] = field(default_factory=lambda: array("q"))
    """0 for a token that only the prompt holds."""


class TokenHistory:
    """Distinct tokens of prompt and output, with their output counts; grows and shrinks at the end."""

    __slots__ = ("_columns", "_num_prompt_columns", "_num_prompt_tokens", "_output", "_output_counts", "_token_ids")

    def __init__(self, prompt_token_ids: Sequence[int], output_token_ids: Sequence[int] = ()) -> None:
        distinct = dict.fromkeys(prompt_token_ids)
        # In order of first appearance: taking back the last token can only take back the last column.
        self._token_ids = array("q", distinct)
        self._output_counts = array("q", bytes(8 * len(distinct)))
        self._columns = {token_id: column for column, token_id in enumerate(distinct)}
        self._num_prompt_columns = len(distinct)
        self._num_prompt_tokens = len(prompt_token_ids)
        self._output: list[int] = []
        self.append(output_token_ids)

    def __len__(self) -> int:
        """Prompt plus output tokens."""
        return self._num_prompt_tokens + len(self._output)

    def append(self, token_ids: Sequence[int]) -> None:
        """Add output tokens at the end."""
        for token_id in token_ids:
            column = self._columns.setdefault(token_id, len(self._token_ids))
            if column == len(self._token_ids):
                self._token_ids.append(token_id)
                self._output_counts.append(0)
            self._output_counts[column] += 1
        self._output.extend(token_ids)

    def truncate(self, length: int) -> None:
        """Keep the first length tokens, prompt included. Raises ValueError when that would cut the prompt."""
        if length < self._num_prompt_tokens:
            raise ValueError(f"cannot cut a prompt of {self._num_prompt_tokens} tokens to {length}")
        while len(self) > length:
            column = self._columns[self._output.pop()]
            self._output_counts[column] -= 1
            if self._output_counts[column] == 0 and column >= self._num_prompt_columns:
                del self._columns[self._token_ids.pop()]
                self._output_counts.pop()

    @property
    def num_output_tokens(self) -> int:
        return len(self._output)

    def end(self, num_tokens: int, draft_token_ids: Sequence[int] = ()) -> tuple[int, ...]:
        """The last num_tokens of the output followed by drafts, or more; all if there are fewer."""
        num_before = num_tokens - len(draft_token_ids)
        return (*(self._output[-num_before:] if num_before > 0 else ()), *draft_token_ids)

    def add_to(self, table: CountTable, row: int, draft_token_ids: Sequence[int] = ()) -> None:
        """Append this history, followed by drafts that count as output, as one row of a table.

        Costs one memory copy, plus work in proportion to the drafts.
        """
        start = len(table.token_ids)
        table.token_ids.extend(self._token_ids)
        table.output_counts.extend(self._output_counts)
        new_columns: dict[int, int] = {}
        for token_id in draft_token_ids:
            column = self._columns.get(token_id)
            if column is None:
                column = new_columns.setdefault(token_id, len(table.token_ids) - start)
                if start + column == len(table.token_ids):
                    table.token_ids.append(token_id)
                    table.output_counts.append(0)
            table.output_counts[start + column] += 1
        table.rows.extend(array("q", (row,)) * (len(table.token_ids) - start))

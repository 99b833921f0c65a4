"""What a head that lives apart from its target knows of one sequence.

The token at position q takes the feature of q - 1. Where the first features are those of position f, the
sequence begins at f for the head: its place 0 holds the token at f, which has no feature before it and which
nobody sees. Rotary embeddings are relative, so places do as well as positions.

Legend: n positions, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.drafting.draft_growth import DraftRows
from pilotfish.models.eagle3.runtime import FIRST_KEY


@dataclass(slots=True)
class FeatureWindow:
    """Features that rows will take, and where the head's part of the sequence begins."""

    origin: int
    """Position of the token at place 0."""
    first_position: int
    """Of values."""
    values: Tensor
    """[n, 3H]"""

    @property
    def end_position(self) -> int:
        return self.first_position + len(self.values)


def begin_features(sequence: EngineSequence, first_position: int, values: Tensor) -> None:
    """Begin at these features [n, 3H]; the sequence holds no blocks."""
    sequence.drafter_state = FeatureWindow(first_position, first_position, values)
    sequence.num_computed_tokens = first_position + FIRST_KEY


def add_features(sequence: EngineSequence, first_position: int, values: Tensor) -> bool:
    """Take in features [n, 3H]; False and no change where they do not continue those before."""
    window = sequence.drafter_state
    if not isinstance(window, FeatureWindow) or not window.first_position <= first_position <= window.end_position:
        return False
    window.values = torch.cat((window.values[: first_position - window.first_position], values))
    return True


def can_draft(sequence: EngineSequence) -> bool:
    """Whether there are features for every row up to the last token's."""
    window = sequence.drafter_state
    first, end = sequence.num_computed_tokens, len(sequence.tokens)
    return isinstance(window, FeatureWindow) and window.first_position < first < end <= window.end_position + 1


def next_rows(sequence: EngineSequence) -> tuple[DraftRows, Tensor]:
    """The rows that are not computed yet, and their states [n, 3H], of a sequence that can draft: the last is the last
    token's."""
    window = _window(sequence)
    first, end = sequence.num_computed_tokens, len(sequence.tokens)
    states = window.values[first - 1 - window.first_position : end - 1 - window.first_position]
    return DraftRows(first - window.origin, sequence.tokens[first:], sequence.block_ids), states


def finish_rows(sequence: EngineSequence) -> None:
    """The rows up to the last token's are computed. Its own feature stays: a repeated question asks for it again."""
    window = _window(sequence)
    sequence.num_computed_tokens = len(sequence.tokens)
    num_done = len(sequence.tokens) - 2 - window.first_position
    window.values = window.values[num_done:].clone()
    window.first_position += num_done


def origin_of(sequence: EngineSequence) -> int:
    """Position of the token at place 0."""
    return _window(sequence).origin


def _window(sequence: EngineSequence) -> FeatureWindow:
    window = sequence.drafter_state
    assert isinstance(window, FeatureWindow), "the sequence has features"
    return window

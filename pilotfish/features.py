"""Features: hidden states of a target that its verdicts bring along, for draft heads that live elsewhere."""

from __future__ import annotations

import msgspec


class FeatureRequest(msgspec.Struct, frozen=True, array_like=True):
    """Features that are wanted with a verdict; see pilotfish.v1.FeatureRequest."""

    first_position: int
    int8: bool = False


class Features(msgspec.Struct, frozen=True, array_like=True):
    """Hidden states of the target at consecutive positions; see pilotfish.v1.Features."""

    first_position: int
    num_tokens: int
    data: bytes
    """The values: as many bytes for each token as for the others."""

    @property
    def token_bytes(self) -> int:
        return len(self.data) // self.num_tokens

    @property
    def end_position(self) -> int:
        return self.first_position + self.num_tokens

    def since(self, position: int) -> Features:
        """The features of the positions from `position` on; not decoded."""
        num_skipped = min(max(0, position - self.first_position), self.num_tokens)
        return self if num_skipped == 0 else self.between(self.first_position + num_skipped, self.end_position)

    def between(self, first: int, end: int) -> Features:
        """The features of the positions from `first` to before `end`, all of which are here; not decoded."""
        begin, size = first - self.first_position, self.token_bytes
        return Features(first, end - first, self.data[begin * size : (end - self.first_position) * size])


def default_feature_layers(num_layers: int) -> tuple[int, int, int]:
    """The layers whose inputs the published heads take from a target of num_layers: low, middle, high."""
    return 2, num_layers // 2, num_layers - 3

"""The target's features of one request on their way to its drafter. They pass through undecoded."""

from __future__ import annotations

from collections import deque

from pilotfish.drafter_registry import DRAFTERS
from pilotfish.features import FeatureRequest, Features
from pilotfish.types import ModelInfo

WINDOW_TOKENS = 512
"""The newest so many tokens' features are kept, for a drafter that begins in the middle of a text."""


class FeatureFeed:
    """See the module. One per request; empty unless somebody wants features."""

    def __init__(self, kept_layers: tuple[int, ...] = ()) -> None:
        """kept_layers: the layers whose features the target keeps, as far as known."""
        self._kept_layers = kept_layers
        self._drafter: ModelInfo | None = None
        """The drafter that wants features; None: none does."""
        self._pieces: deque[Features] = deque()
        """Features in order of position, without gaps."""

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    @property
    def end_position(self) -> int:
        """Features of the positions from here on are missing."""
        return self._pieces[-1].end_position if self._pieces else 0

    def shortage(self, drafter: ModelInfo) -> str:
        """Why a drafter of this kind cannot have its features; empty if it can, or needs none."""
        if drafter.feature_layers in ((), self._kept_layers):
            return ""
        kept = f"those of layers {list(self._kept_layers)}" if self._kept_layers else "none"
        return (
            f"the drafter {drafter.proposer} needs features of the target's layers {list(drafter.feature_layers)}, "
            f"and the target keeps {kept} (target.feature_layers)"
        )

    def want(self, drafter: ModelInfo) -> None:
        """Ask the target for what this drafter needs, from the next command on."""
        known, self._drafter = self._drafter, drafter
        if known is None or _form(known) != _form(drafter):
            self._pieces.clear()

    def stop(self) -> None:
        """Ask the target for none, until a drafter wants them."""
        self._pieces.clear()
        self._drafter = None

    def request(self, target: ModelInfo, length: int) -> FeatureRequest | None:
        """What goes with a command that stands on length tokens; None where nothing is wanted or to be had."""
        self._kept_layers = target.feature_layers
        drafter = self._drafter
        if drafter is None or not drafter.feature_layers or self.shortage(drafter):
            return None
        kind = DRAFTERS.get(drafter.proposer)
        num_useful = WINDOW_TOKENS if kind is None or kind.reads_text else 1
        return FeatureRequest(max(self.end_position, length - num_useful, 0), drafter.takes_int8_features)

    def add(self, features: Features) -> None:
        """Take in what came with a verdict; where it does not continue what is here, it replaces it."""
        # Another target may know another form.
        is_same_form = not self._pieces or self._pieces[-1].token_bytes == features.token_bytes
        if features.first_position != self.end_position or not is_same_form:
            self._pieces.clear()
        self._pieces.append(features)
        while len(self._pieces) > 1 and self._pieces[0].end_position + WINDOW_TOKENS <= features.end_position:
            self._pieces.popleft()

    def since(self, position: int) -> Features | None:
        """The features that are here of the positions from `position` on."""
        parts = [piece.since(position) for piece in self._pieces if piece.end_position > position]
        if not parts:
            return None
        return Features(
            parts[0].first_position,
            sum(part.num_tokens for part in parts),
            b"".join(part.data for part in parts),
        )


def _form(drafter: ModelInfo) -> tuple[tuple[int, ...], bool]:
    return drafter.feature_layers, drafter.takes_int8_features

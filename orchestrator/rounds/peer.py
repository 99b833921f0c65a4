"""What one replica knows of one sequence: the same for target, drafter and vLLM's rows."""

from __future__ import annotations

from typing import Protocol

from pilotfish.messages import OpenSequence
from pilotfish.step_table import StepTable
from pilotfish.types import Limits, LoadReport, ModelInfo


class Replica(Protocol):
    """A replica as its sequences see it: to look at, not to send to."""

    @property
    def replica_id(self) -> str: ...

    @property
    def is_connected(self) -> bool: ...

    @property
    def is_healthy(self) -> bool:
        """Connected, not draining, and not failing round after round."""

    @property
    def model(self) -> ModelInfo:
        """What it serves. Raises UnavailableError while it is not connected."""

    @property
    def limits(self) -> Limits:
        """Raises UnavailableError while it is not connected."""

    @property
    def load(self) -> LoadReport:
        """The latest report."""

    @property
    def step_table(self) -> StepTable:
        """What its steps take, by the latest report that says."""

    @property
    def num_other_sequences(self) -> int:
        """Sequences of other orchestrators there, by the last reports."""

    def serves(self, sequence_id: int) -> bool:
        """Whether an open sequence should stay: not on a replica that drains, or fails while others try it again."""

    def new_sequence_id(self) -> int:
        """An id that no sequence has had there."""


class Text(Protocol):
    """Committed tokens: prompt and output."""

    @property
    def length(self) -> int:
        """Committed tokens."""

    def tokens_since(self, position: int) -> tuple[int, ...]:
        """Committed tokens from absolute `position` on."""

    def opening(self, sequence_id: int) -> OpenSequence:
        """The message that opens the sequence on a replica that continues it from here."""


class Peer:
    """See the module. Raises UnavailableError when it is made of a replica that is not connected."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.model = replica.model
        self.limits = replica.limits
        self.sequence_id = replica.new_sequence_id()
        self.known_length = 0
        """Committed tokens that were sent to the replica."""
        self.features_end = 0
        """First position whose features the replica lacks."""
        self.cut_in_lengths: set[int] = set()
        """Committed tokens on which drafts stood that were sent into a run."""
        self.is_opened = False
        """Whether the replica has said that it took the sequence."""
        self.is_lost = False
        """Whether nothing more will come of it."""

    @property
    def is_usable(self) -> bool:
        return not self.is_lost and self.replica.is_connected

    @property
    def is_welcome(self) -> bool:
        """Usable, and on a replica that is worth staying on."""
        return self.is_usable and self.replica.serves(self.sequence_id)

    def opening(self, text: Text) -> OpenSequence:
        """The message that opens the sequence with every committed token."""
        self.known_length = text.length
        return text.opening(self.sequence_id)

    def news(self, text: Text) -> tuple[int, ...]:
        """The committed tokens that were not yet sent to the replica; they count as sent now."""
        token_ids, self.known_length = text.tokens_since(self.known_length), text.length
        return token_ids

    def rewind(self, length: int) -> None:
        """Forget the tokens beyond `length`: they were speculative."""
        self.known_length = min(self.known_length, length)

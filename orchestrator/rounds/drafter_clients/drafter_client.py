"""A drafter as the machine sees it: the contract, and the drafter that lives in the target."""

from __future__ import annotations

from orchestrator.answers.sequence import Sequence
from orchestrator.rounds.commands import Event
from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.peer import Peer


class DrafterClient:
    """Proposes tokens for one sequence. Nothing that happens here fails a request. This one never has an idea."""

    is_in_target = False
    """Whether the target drafts for itself, in the steps of its runs."""

    has_lookup = False
    """Whether `glance` may have an idea."""

    @property
    def peer(self) -> Peer | None:
        """The replica that has the sequence; None: there is none."""
        return None

    @property
    def num_missed_deadlines(self) -> int:
        return 0

    @property
    def unavailable_reason(self) -> str:
        """Why drafts cannot be had now; empty if they can."""
        return ""

    @property
    def stand_in(self) -> str:
        """The lookup that drafts alone now, as the drafter behind it cannot; empty: there is none."""
        return ""

    @property
    def is_saturated(self) -> bool:
        """Whether it has more to do than it can: drafts would come late."""
        return False

    def prepare(self, sequence: Sequence, now_s: float) -> None:
        """Begin to read the prompt, while the target does."""

    def ask(self, sequence: Sequence, num_tokens: int, now_s: float) -> Draft | None:  # noqa: ARG002
        """A draft of at most num_tokens tokens that continues the committed ones, or a tree of that depth.

        None: a later event brings the draft, or ends the wait for it.
        """
        return NO_DRAFT

    def hear(self, event: Event, sequence: Sequence, now_s: float) -> Draft | None:  # noqa: ARG002
        """Something happened; the draft that was waited for, if that settles it."""
        return None

    def handed_on(self, sequence: Sequence, num_tokens: int, now_s: float) -> Draft:  # noqa: ARG002
        """The predraft for the committed tokens, which the target was handed and verifies by now.

        num_tokens: wanted of the rounds from here on; 0: nothing, the next round is another's.
        """
        return NO_DRAFT

    def glance(self, sequence: Sequence, num_tokens: int) -> Draft:  # noqa: ARG002
        """What `ask` would answer, where that costs next to nothing. Asked while the target decodes plainly.

        num_tokens: 0: the drafter rests; what a lookup before it is sure of is welcome.
        """
        return NO_DRAFT

    def rewind(self, length: int) -> None:
        """Forget what followed length committed tokens: it was speculative."""

    def close(self) -> None:
        """Free what is held elsewhere. Idempotent."""


class InTargetClient(DrafterClient):
    """Reports whether the target has the wanted drafter; the target itself drafts."""

    is_in_target = True

    def __init__(self, proposer: str, target_proposer: str) -> None:
        """target_proposer: the drafter that the target reports; empty: none."""
        self._absence = ""
        if proposer != target_proposer:
            has = f"it has {target_proposer}" if target_proposer else "it has none"
            self._absence = f"no drafter {proposer} in the target: {has} (target.drafter)"

    @property
    def unavailable_reason(self) -> str:
        return self._absence

"""A row as a draft replica holds it: opened there, told what is new, and asked."""

from __future__ import annotations

import contextlib
from typing import Final

from orchestrator.replicas.remote_sequence import Link, Mailbox
from pilotfish.errors import PilotfishError
from pilotfish.integrations.vllm.committed_row import CommittedRow
from pilotfish.messages import AheadRequest, CloseSequence, OpenSequence, Propose
from pilotfish.types import SamplingParams

_MAX_OUTPUT_TOKENS = 2**31 - 1
"""vLLM knows when to stop."""

GREEDY: Final = SamplingParams(temperature=0.0, max_tokens=_MAX_OUTPUT_TOKENS)
"""vLLM takes drafts as certain, without probabilities: it accepts each with the chance that its own model gives it, so
the likeliest token is the best draft at any temperature."""


class ReplicaRow:
    """On one replica at a time, or on none."""

    def __init__(self, row: CommittedRow) -> None:
        self._row = row
        self._sequence_id = 0
        self._told_length = 0
        self.link: Link | None = None
        """To the replica where it is open; None: it is nowhere."""

    @property
    def is_worth_staying(self) -> bool:
        """Whether the replica serves it still."""
        return self.link is not None and self.link.serves(self._sequence_id)

    def open(self, link: Link, mailbox: Mailbox) -> None:
        """With every committed token; answers go to the mailbox. It must be open nowhere. Raises UnavailableError."""
        assert self.link is None
        self.link = link
        self._sequence_id = link.attach(mailbox)
        link.send(
            OpenSequence(
                sequence_id=self._sequence_id,
                prompt_token_ids=self._row.prompt_token_ids,
                output_token_ids=self._row.output_token_ids,
                sampling=GREEDY,
                traceparent=self._row.trace.traceparent,
            )
        )
        self._told_length = self._row.length

    def propose(self, num_tokens: int, ahead: AheadRequest | None, *, is_prepared: bool) -> None:
        """Tell the tokens that are new, and ask for a draft on all committed ones.

        is_prepared: that draft is at hand, only `ahead` is wanted. Raises UnavailableError or ResourceExhaustedError.
        """
        assert self.link is not None
        self.link.send(
            Propose(
                sequence_id=self._sequence_id,
                base_length=self._row.length,
                new_token_ids=self._row.tokens_since(self._told_length),
                num_draft_tokens=min(num_tokens, self.link.limits.max_draft_tokens),
                ahead=ahead,
                is_prepared=is_prepared,
            )
        )
        self._told_length = self._row.length

    def close(self) -> None:
        """Free what the replica holds for it. Idempotent; never raises."""
        link, self.link = self.link, None
        if link is None:
            return
        if link.is_connected:
            # A stream that is going down releases the sequence as well.
            with contextlib.suppress(PilotfishError):
                link.send(CloseSequence(self._sequence_id))
        link.detach(self._sequence_id)

"""Why a round speculates or does not: stable identifiers for metrics and traces, a sentence for people."""

from __future__ import annotations

from enum import StrEnum

from orchestrator.requests.request import GenerationRequest
from pilotfish.config import SpeculationConfig


class Reason(StrEnum):
    """Identifiers are part of the interface: add to them, never rename one."""

    text: str
    """A sentence for people."""
    is_limiting: bool
    """Whether the client should know of it: speculation was off or limited."""

    def __new__(cls, value: str, text: str, is_limiting: bool = True) -> Reason:
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.text = text
        reason.is_limiting = is_limiting
        return reason

    # It speculates.
    FASTEST = "fastest", "measured: the fastest", False
    REQUESTED = "requested", "the request asks for it", False
    PROBE = "probe", "a probe: the text may have become predictable, or the drafter faster", False

    # It decodes plainly, as every request does now and then.
    FIRST_TOKEN = "first_token", "the first token waits for no drafter", False
    LAST_TOKEN = "last_token", "one token is left", False
    MEASURING = "measuring", "plain decoding is measured", False

    # It is off.
    MODE_OFF = "mode_off", "the request or the server's default turns speculation off"
    NO_DRAFT_TOKENS = "no_draft_tokens", "num_speculative_tokens is 0"
    SHORT_OUTPUT = "short_output", "the answer is too short to repay a drafter"
    NO_DRAFTER = "no_drafter", "there is no drafter"
    DRAFT_POOL_SATURATED = "draft_pool_saturated", "all places of the draft pool are taken"
    NO_STEPS = "no_steps", "steps of reasoning could not be drafted or judged"
    DRAFTER_FAILED = "drafter_failed", "the drafter failed"
    BATCH_SIZE = "batch_size", "an operator's rule for this many decoding sequences"
    ACCEPTANCE_FLOOR = "acceptance_floor", "fewer drafts are accepted than min_acceptance_rate asks"
    LOAD = "load", "measured: plain decoding is faster under this load"
    ROUND_TIME = "round_time", "measured: plain decoding is faster, drafting and verifying take too long"
    ACCEPTANCE = "acceptance", "measured: plain decoding is faster, too few drafts are found or accepted"


LOOKUP_GOES_ON = frozenset((Reason.ROUND_TIME, Reason.ACCEPTANCE, Reason.ACCEPTANCE_FLOOR))
"""Why a drafter is not asked, which say nothing against a lookup before it: drafts as such would pay."""


class Limitation:
    """Why speculation was off or limited for a request, as found last: for its summary."""

    def __init__(self, reason: Reason | None) -> None:
        """reason: why it never speculates; None: it may."""
        self.reason = reason
        self._details = ""

    @property
    def text(self) -> str:
        """The reason for people; empty if there was none."""
        return self._details or (self.reason.text if self.reason else "")

    def note(self, reason: Reason, details: str) -> None:
        """Keep why, if it limits speculation. details: a more exact sentence than the reason's own."""
        if reason.is_limiting:
            self.reason = reason
            self._details = details


def permanent_reason(request: GenerationRequest, config: SpeculationConfig) -> Reason | None:
    """Why this request never speculates, whatever is measured; None if it may."""
    mode = request.speculation.mode
    if mode == "off":
        return Reason.MODE_OFF
    if request.num_speculative_tokens == 0:
        return Reason.NO_DRAFT_TOKENS
    if mode == "auto" and request.sampling.max_tokens < config.min_output_tokens:
        return Reason.SHORT_OUTPUT
    return None

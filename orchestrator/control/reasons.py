"""Why a round speculates or does not: stable identifiers for metrics and traces, a sentence for people."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Identifiers are part of the interface: add to them, never rename one."""

    # It speculates.
    FASTEST = "fastest"
    REQUESTED = "requested"
    PROBE = "probe"

    # It decodes plainly, as every request does now and then.
    FIRST_TOKEN = "first_token"
    LAST_TOKEN = "last_token"
    MEASURING = "measuring"

    # It is off.
    MODE_OFF = "mode_off"
    NO_DRAFT_TOKENS = "no_draft_tokens"
    SHORT_OUTPUT = "short_output"
    NO_DRAFTER = "no_drafter"
    DRAFT_POOL_SATURATED = "draft_pool_saturated"
    DRAFTER_FAILED = "drafter_failed"
    BATCH_SIZE = "batch_size"
    ACCEPTANCE_FLOOR = "acceptance_floor"
    LOAD = "load"
    ROUND_TIME = "round_time"
    ACCEPTANCE = "acceptance"

    @property
    def is_limiting(self) -> bool:
        """Whether it is worth telling the client that speculation was off or limited."""
        return self in _LIMITING

    @property
    def text(self) -> str:
        """A sentence for people."""
        return _TEXTS[self]


_TEXTS = {
    Reason.FASTEST: "measured: the fastest",
    Reason.REQUESTED: "the request asks for it",
    Reason.PROBE: "a probe: the text may have become predictable, or the drafter faster",
    Reason.FIRST_TOKEN: "the first token waits for no drafter",
    Reason.LAST_TOKEN: "one token is left",
    Reason.MEASURING: "plain decoding is measured",
    Reason.MODE_OFF: "the request or the server's default turns speculation off",
    Reason.NO_DRAFT_TOKENS: "num_speculative_tokens is 0",
    Reason.SHORT_OUTPUT: "the answer is too short to repay a drafter",
    Reason.NO_DRAFTER: "there is no drafter",
    Reason.DRAFT_POOL_SATURATED: "the draft pool is saturated",
    Reason.DRAFTER_FAILED: "the drafter failed",
    Reason.BATCH_SIZE: "an operator's rule for this many decoding sequences",
    Reason.ACCEPTANCE_FLOOR: "fewer drafts are accepted than min_acceptance_rate asks",
    Reason.LOAD: "measured: plain decoding is faster under this load",
    Reason.ROUND_TIME: "measured: plain decoding is faster, drafting and verifying take too long",
    Reason.ACCEPTANCE: "measured: plain decoding is faster, too few drafts are found or accepted",
}

_LIMITING = frozenset(
    (
        Reason.MODE_OFF,
        Reason.NO_DRAFT_TOKENS,
        Reason.SHORT_OUTPUT,
        Reason.NO_DRAFTER,
        Reason.DRAFT_POOL_SATURATED,
        Reason.DRAFTER_FAILED,
        Reason.BATCH_SIZE,
        Reason.ACCEPTANCE_FLOOR,
        Reason.LOAD,
        Reason.ROUND_TIME,
        Reason.ACCEPTANCE,
    )
)

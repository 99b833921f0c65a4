"""How long a round waits for its draft. Pure."""

from __future__ import annotations

_MIN_DEADLINE_S = 0.01
"""Below this the deadline would measure the event loop, not the drafter."""
_UNMEASURED_DECODE_S = 0.05
_PATIENCE = 3.0
"""A draft is late after this many times the current draft time."""
_MOST_PATIENCE = 8.0
"""A draft is late after this many times plain decoding's time, whatever drafts take."""


def draft_deadline_s(num_tokens: int, decode_s: float, ask_s: float) -> float:
    """The time of num_tokens plain tokens, as waiting longer cannot pay; three times a draft's where that is more.

    Under load all drafts take long, and giving one up just before it comes pays least: whether to ask at all is the
    controller's decision.
    decode_s: a plain decode step; 0: not known. ask_s: what drafts take now; 0: not measured yet.
    """
    plain_s = max(num_tokens * (decode_s or _UNMEASURED_DECODE_S), _MIN_DEADLINE_S)
    return min(max(plain_s, _PATIENCE * ask_s), _MOST_PATIENCE * plain_s)

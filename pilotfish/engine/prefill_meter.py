"""How much longer prefills make the steps of those who decode. Pure."""

from __future__ import annotations

from pilotfish.engine.step_curve import StepCurve

_WEIGHT = 0.25
"""Of the latest step in an average."""


class PrefillMeter:
    """What rounds take with speculation and what tokens take without is compared apart from the prefills that fell into
    them: how much is read, and when, is up to the clients, and one long prompt makes a round five times as long.

    A prefill is charged what it would have added to a step in which the same sequences had decoded plainly, whatever
    they did. The comparison stays exact with any charge that does not depend on that, since an output token comes with
    as many prompt tokens either way. This one leaves to plain decoding what its steps take without prefills; and to
    speculation what prompts cost more beside drafts, whose rows fill the room that a step of few rows has for them. A
    step in which nobody decodes is charged whole.

    What a plain step takes is remembered: where all have speculated since, while contexts grew, too little is taken for
    it, and what the contexts cost for the prefills'.
    """

    def __init__(self) -> None:
        self._curve = StepCurve()
        """Of steps without prefills."""
        self._row_ns: dict[int, float] = {}
        """Time of a step over its rows, by the doublings of its rows."""
        self.step_ns = 0
        """Charged for the last step;"""
        self.total_ns = 0
        """and for all of them."""

    def add(self, num_rows: int, num_prefill_rows: int, num_decoding: int, step_ns: float) -> None:
        """A step has ended. num_prefill_rows: among num_rows, of which there are some; the others are of num_decoding
        sequences."""
        self.step_ns = 0
        if num_decoding:
            # Of other steps a GPU's may be told before they have ended.
            size, row_ns = num_rows.bit_length(), step_ns / num_rows
            before_ns = self._row_ns.get(size, row_ns)
            self._row_ns[size] = before_ns + _WEIGHT * (row_ns - before_ns)
        if not num_prefill_rows:
            self._curve.add(num_rows, round(step_ns))
        elif not num_decoding:
            self.step_ns = round(step_ns)
        else:
            # Beside many rows one more costs no less than its share of the largest steps.
            row_ns = min(self._row_ns.values())
            num_draft_rows = num_rows - num_prefill_rows - num_decoding
            plain_ns = self._plain_ns(num_decoding, num_draft_rows, row_ns)
            self.step_ns = max(0, round(step_ns - num_draft_rows * row_ns - plain_ns))
        self.total_ns += self.step_ns

    def failed(self) -> None:
        """The step has ended, and nothing is known of it."""
        self.step_ns = 0

    def _plain_ns(self, num_decoding: int, num_draft_rows: int, row_ns: float) -> float:
        """Of a step in which they decode plainly, without prefills. What steps with their drafts take bounds it: a
        plain one may have been measured long ago, or only while the engine warmed up."""
        with_drafts_ns = self._curve.step_ns(num_decoding + num_draft_rows)
        plain_ns = max(self._curve.step_ns(num_decoding), with_drafts_ns - num_draft_rows * row_ns)
        # As long as there was no step without a prefill, those who decode are rows like any.
        return min(plain_ns, with_drafts_ns) or num_decoding * row_ns

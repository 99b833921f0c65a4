"""Whether speculation pays on a replica under its load: one answer for all sequences that decode there."""

from __future__ import annotations

from orchestrator.control.window import RunningAverage

_MARGIN = 0.02
"""What is on goes off, and what is off goes on, where that is better by so much."""
_UNKNOWN_MARGIN = 0.05
"""To go on under a load where rounds were never measured: what is expected of them is the best."""
_SETTLING_ROUNDS = 2
"""Of each sequence, after a switch: until then some do what was done before, and what is measured is a mixture."""
_MIN_ROUNDS = 4
_CLEAR_LOSS = 0.8
"""A speed that ends speculation as soon as it is measured."""
_MIN_PLAIN_TOKENS = 32
"""Of each sequence, before it is on again."""
_GAIN_WEIGHT = 0.03
"""Of the latest gain: what rounds take wanders by a fifth within tenths of a second, and a switch off lasts seconds."""
_CLOSED_GAIN_WEIGHT = 0.1
"""The same where it is closed. A moment in which speculation seems to pay comes soon where it never does,"""
_CLOSED_GAIN_PRIOR = 5
"""even at first: before the first one there were as many that just do not pay. Only a fifth outweighs them at once."""
_NEW_LOAD = 1.25
"""By how much the decoding sequences change for a decision of a while ago to say nothing about now."""


class Gate:
    """One state for all keeps what is measured clean: a round takes what it takes if all speculate, or none do.

    It waits after a switch until the measurements speak of the new state, unless the load is another one.
    """

    def __init__(self) -> None:
        self.is_open: bool | None = None
        """None until it is first decided."""
        self.num_switches = 0
        self.state_number = 0
        """Another one after every switch and under every new load: what is counted from then on begins anew."""
        self.judged: dict[int, object] = {}
        """What the latest answers were derived from, by the most draft tokens that a request allows: from the same they
        would be the same."""
        self._num_sequences = 1
        """Of the load that it was decided for."""
        self._num_rounds = 0
        self._num_plain_tokens = 0
        self._gain = RunningAverage(weight=_GAIN_WEIGHT)
        """While it is open, from when every sequence has measured it."""
        self._closed_gain = _new_closed_gain()
        """While it is closed, from when it has waited."""

    @property
    def lasting_gain(self) -> float | None:
        """What speculation has gained lately, for all; None while it is closed, or not every sequence has measured."""
        return self._gain.value

    def is_settled(self, num_sequences: int) -> bool:
        """Whether rounds are what they are with all speculating."""
        return self.is_open is not False and self._num_rounds >= _SETTLING_ROUNDS * num_sequences

    def is_closed_under(self, num_sequences: int) -> bool:
        """Whether it is closed, and was for about so many sequences."""
        return self.is_open is False and not self._is_new_load(num_sequences)

    def count_round(self) -> None:
        self._num_rounds += 1

    def count_plain_tokens(self, num_tokens: int, state_number: int) -> None:
        """Of a run that was decided for in that state: in another one it says nothing."""
        if state_number == self.state_number:
            self._num_plain_tokens += num_tokens

    def update(
        self, gain: float, num_sequences: int, num_own: int, *, is_measured: bool, is_retry: bool = False
    ) -> bool:
        """Returns whether it is open.

        gain: expected speed with speculation over that without, for all num_sequences that decode.
        num_own: of them, those whose rounds and tokens are counted here.
        is_measured: rounds under this load were, so that more than a model speaks for the gain.
        is_retry: rounds are to be tried again: what they were believed to take before says nothing.
        """
        if self.is_open is None:
            self.is_open = gain > 1
        is_new_load = self._is_new_load(num_sequences)
        has_waited = self._num_plain_tokens >= _MIN_PLAIN_TOKENS * num_own
        if self.is_open:
            # Where many went off by themselves, few rounds are left to count.
            has_measured = has_waited or self._num_rounds >= _MIN_ROUNDS * num_own
            if has_measured:
                self._gain.add(gain)
            is_lasting = has_measured and (self._gain.value or gain) < 1 - _MARGIN
            is_clear = gain < _CLEAR_LOSS and self.is_settled(num_own)
            if gain < 1 - _MARGIN and (is_new_load or is_lasting or is_clear):
                self._switch()
        else:
            if has_waited:
                self._closed_gain.add(gain)
            least = 1 + (_MARGIN if is_measured else _UNKNOWN_MARGIN)
            lasting_gain = gain if is_retry else self._closed_gain.value
            is_lasting = has_waited and lasting_gain is not None and lasting_gain > least
            if gain > least and (is_new_load or is_lasting):
                self._switch()
        if is_new_load:
            self._num_sequences = num_sequences
            self._begin_anew()
        return self.is_open

    def _switch(self) -> None:
        self.is_open = not self.is_open
        self.num_switches += 1
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.state_number += 1
        self._gain, self._closed_gain = RunningAverage(weight=_GAIN_WEIGHT), _new_closed_gain()
        self._num_rounds = self._num_plain_tokens = 0

    def _is_new_load(self, num_sequences: int) -> bool:
        return not self._num_sequences / _NEW_LOAD < num_sequences < self._num_sequences * _NEW_LOAD


def _new_closed_gain() -> RunningAverage:
    return RunningAverage(1 - _MARGIN, _CLOSED_GAIN_WEIGHT, _CLOSED_GAIN_PRIOR)

"""Speculation on or off, for all sequences of a replica and proposer.

One answer for all keeps what is measured clean: a round takes what it takes if all speculate, or none do. The gate
follows the predicted gain, with hysteresis and a dwell. A guard holds the tokens that were really got against plain
decoding. A trial looks, ever more rarely, whether the other state is better by now.
"""

from __future__ import annotations

from collections import Counter

OFF_BELOW, ON_ABOVE = 0.97, 1.05
"""Predicted speed over plain decoding's below which an open gate closes, and above which a closed one opens."""
NEW_LOAD = 1.25
"""A change of the load by this factor makes earlier decisions obsolete."""
_CLEAR_LOSS = 0.85
"""Measured speed that closes the gate after one window; after two it is OFF_BELOW."""
_WINDOW_S = 1.0
"""Least duration of the guard's window; the rounds in it must have taken half as long together."""
_OTHER_LOAD = 2.0
"""A change of the load by this factor makes what guard and trials found obsolete: a load that never rests keeps it."""
_DWELL_S = 0.5
"""Least time between two switches, unless the load is another one."""
_SETTLING_S = 0.1
"""Time after a switch in which some sequences still do what was done before."""
_FIRST_RETRY_S, _LAST_RETRY_S = 2.0, 60.0
"""Time in use until the other state is tried; doubled by every trial that changes nothing."""
_PAUSE_S = 1.0
"""At most 1 s between two plans counts as use: a replica that is asked now and then is not tried at every answer."""
_TRIAL_S, _LONGEST_TRIAL_S = 0.25, 2.0
"""Least and greatest duration of a trial: a short one may see a single text, whose drafts are unlike others'."""
_TRIAL_COST = 0.01
"""Share of the speed that trials may cost: one that is likely to lose much comes later, any other lasts longer."""


class Gate:
    """Pure: time is an argument. Ask `update` for every new plan."""

    def __init__(self, num_switches: Counter[bool]) -> None:
        """num_switches: those of all gates, on (True) and off; counted up here."""
        self.is_open: bool | None = None
        """Whether the sequences speculate; None until it is first decided."""
        self.is_trial = False
        """Whether the present state is only a trial, to be measured."""
        self.num_switches = 0
        self._num_switches_of_all = num_switches
        self._changed_s = 0.0
        self._load = 1
        self._updated_s = self._in_use_s = self._retry_at_s = self._trial_end_s = 0.0
        self._trial_s = _TRIAL_S
        """Duration of the next trial."""
        self._num_retries = 0
        self.is_guarded = False
        """Whether the guard has closed it: what is predicted has been wrong."""
        self._judged_load = 1
        """Load under which what guard and trials have found began to hold."""
        self._window_before = (0.0, 0.0)
        """The window before: seconds that plain decoding would have taken for its tokens, and that they took."""
        self._begin_window(0.0)

    def is_settled(self, begin_s: float) -> bool:
        """Whether what began then was done by all alike."""
        return begin_s >= self._changed_s + _SETTLING_S

    def add(self, num_tokens: float, plain_s: float, elapsed_s: float) -> None:
        """A sequence got num_tokens in elapsed_s, where a plain one takes plain_s."""
        self._expected_s += num_tokens * plain_s
        self._got_s += elapsed_s

    def update(self, now_s: float, load: int, gain: float, *, can_pay: bool, trial_s: float) -> bool:
        """Returns whether it is open.

        gain: predicted speed over plain decoding's. can_pay: with good drafts speculation would pay under this load, so
        that trials make sense. trial_s: what measuring takes at least.
        """
        self._in_use_s += min(now_s - self._updated_s, _PAUSE_S)
        self._updated_s = now_s
        if self.is_open is None:
            self.is_open = gain > 1
            self._load = load
            self._judged_load = load
            self._changed_s = now_s
            self._plan_retry(gain, trial_s)
        if not self._load / NEW_LOAD < load < self._load * NEW_LOAD:
            self._load = load
            self.is_trial = False
            is_other = not self._judged_load / _OTHER_LOAD < load < self._judged_load * _OTHER_LOAD
            if is_other:
                self._judged_load = load
                self.is_guarded = False
            if gain < OFF_BELOW if self.is_open else gain > ON_ABOVE and not self.is_guarded:
                self._switch(now_s)
                is_other = True
            if is_other:
                self._num_retries = 0
                self._plan_retry(gain, trial_s)
        elif self.is_trial:
            self._judge_trial(now_s, gain, trial_s)
        elif now_s >= self._changed_s + _DWELL_S:
            if self._is_switch_due(now_s, gain, can_pay=can_pay):
                self._switch(now_s)
                self._plan_retry(gain, trial_s)
            elif self._in_use_s >= self._retry_at_s and can_pay:
                self._switch(now_s)
                self.is_trial = True
                self._trial_end_s = now_s + _SETTLING_S + max(self._trial_s, trial_s)
        return self.is_open

    def _is_switch_due(self, now_s: float, gain: float, *, can_pay: bool) -> bool:
        if self.is_open:
            return self._guard_says_no(now_s) or (gain < OFF_BELOW and (self._measured_gain < 1 or not can_pay))
        return gain > ON_ABOVE and not self.is_guarded

    def _judge_trial(self, now_s: float, gain: float, trial_s: float) -> None:
        is_measured = now_s >= self._changed_s + _least_s(trial_s)
        is_lost = is_measured and self.is_open and 0 < self._measured_gain < _CLEAR_LOSS
        if now_s < self._trial_end_s and not is_lost:
            return
        self.is_trial = False
        got = min(gain, self._measured_gain or gain)  # what is predicted may be what the guard found wrong
        if got > (1 + ON_ABOVE) / 2 if self.is_open else gain < OFF_BELOW:
            self._num_retries = 0
            self.is_guarded = False
        else:
            self._switch(now_s)
        self._plan_retry(gain, trial_s)

    def _guard_says_no(self, now_s: float) -> bool:
        """Ends a window that is complete; whether fewer tokens were got in it than plain decoding gives."""
        if now_s < self._window_begin_s + _WINDOW_S or self._got_s < _WINDOW_S / 2:
            return False
        windows = self._window_before, (self._expected_s, self._got_s)
        self._begin_window(now_s)
        self._window_before = windows[1]
        is_low = [expected_s < OFF_BELOW * got_s for expected_s, got_s in windows]
        self.is_guarded = all(is_low) or windows[1][0] < _CLEAR_LOSS * windows[1][1]
        return self.is_guarded

    @property
    def _measured_gain(self) -> float:
        """Speed over plain decoding's that was really got, in the window before and in this one; 0: not known."""
        got_s = self._got_s + self._window_before[1]
        return (self._expected_s + self._window_before[0]) / got_s if got_s else 0.0

    def _switch(self, now_s: float) -> None:
        self.is_open = not self.is_open
        self.num_switches += 1
        self._num_switches_of_all[self.is_open] += 1
        self._changed_s = now_s
        self._begin_window(now_s)

    def _begin_window(self, now_s: float) -> None:
        self._window_begin_s = now_s
        self._expected_s = self._got_s = 0.0
        self._window_before = (0.0, 0.0)

    def _plan_retry(self, gain: float, trial_s: float) -> None:
        """When the state of now is doubted: the later, the more the other one is likely to lose."""
        loss = max(0.0, 1 - (1 / gain if self.is_open and gain else gain))
        cheap_s = _least_s(trial_s) * loss / _TRIAL_COST
        distance_s = min(_LAST_RETRY_S, max(_FIRST_RETRY_S, cheap_s) * 2**self._num_retries)
        self._retry_at_s = self._in_use_s + distance_s
        affordable_s = _TRIAL_COST * distance_s / loss if loss else _LONGEST_TRIAL_S
        self._trial_s = min(_LONGEST_TRIAL_S, max(_TRIAL_S, affordable_s))
        self._num_retries = min(self._num_retries + 1, 8)


def _least_s(trial_s: float) -> float:
    """The shortest trial, with its beginning that is not measured. trial_s: what measuring takes at least."""
    return _SETTLING_S + max(_TRIAL_S, trial_s)

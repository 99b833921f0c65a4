"""What is known of one target replica: who decodes there, and what that costs."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.control.load_level import one_in
from orchestrator.control.prices import Prices
from orchestrator.control.recent_peak import RecentPeak
from orchestrator.control.round_times import RoundTimes
from orchestrator.control.step_costs import StepCosts
from orchestrator.control.window import MedianWindow, RunningAverage
from pilotfish.profiles import HardwareProfile
from pilotfish.types import LoadReport

MEASURING_TOKENS = 4
"""Of a plain run: shorter ones would measure the round trip more than the decoding."""
_MAX_VERIFICATIONS_PER_DECODE = 512
"""Where speculation always wins, nothing else tells what plain decoding takes by now: it costs well under 1 %."""
_MAX_DOUBTLESS_VERIFICATIONS = 64 * _MAX_VERIFICATIONS_PER_DECODE
_STEP_WEIGHT = 0.2
"""Of the latest step."""
_MAX_PLAIN_EXCESS = 0.1
"""Of a token in a decode run over its step, and below it: runs are pipelined, so that more is a mistake or passes."""
_MAX_PLAIN_ROWS = 1.25
"""Of a sequence, in a step without drafts of many."""
_MIN_PLAIN_STEPS = 0.65
"""Of the latest steps, where other orchestrators' sequences decode plainly, too. Where they speculate, up to half of
the steps pass while all of them draft."""
_BELIEVED_RUNS = 5
"""One run of a few tokens scatters by a tenth, and where speculation is on there may be no other: what fewer say is
believed in part where they took longer than their steps. If that makes plain decoding look too fast, it will be used,
and measured."""
_PEAK_S = 0.25
"""Time in which the places of requests that end are taken by others, their prefills included."""
_RUN_SEQUENCES, _MAX_RUN_GROWTH = 32, 8
"""A plain run is as many times longer as there are so many sequences, up to so many times,"""
_MAX_RUN_S = 1.0
"""of the target's steps, but grows no further. What tokens take besides, where the services cannot keep up, must not
make runs shorter: then they could keep up even less."""
_MOST = 0.8
"""Of the sequences: if so many speculate, a round takes what it takes if all do, and if so many do not, a decoded
token."""
_MOST_OF_SOME = 0.5
"""The same, where a drafter has answers only to a part of what it is asked: for most of the time even those who ask
decode plainly, and the rows that they compute are known."""


class ReplicaRecord:
    """Shared by the controllers of one orchestrator."""

    def __init__(self, profile: HardwareProfile | None = None) -> None:
        """profile: its costs to begin with; None: all are measured."""
        self.costs = StepCosts(None if profile is None else profile.target)
        self.is_batch_too_large = False
        """Whether disable_by_batch_size has speculation off."""
        self._profile = profile
        self._plain = MedianWindow()
        """Time of a token in a decode run over that of a step."""
        self._num_plain_runs = 0
        self._recent_step_s = RunningAverage(weight=_STEP_WEIGHT)
        self._plain_steps = RunningAverage()
        """The share of steps without a draft."""
        self._latest_load: LoadReport | None = None
        self._rounds: dict[str, RoundTimes] = {}
        self._num_verifications = 0  # since decoding was measured
        self._max_verifications = _MAX_VERIFICATIONS_PER_DECODE
        self._doubted_ratio = 1.0
        self._num_others = 0  # sequences of other orchestrators
        self._num_own = 0
        self._num_own_rows = 0.0
        self._num_speculating = 0
        self._peak = RecentPeak(_PEAK_S)
        self._now_s = float("-inf")

    # Who decodes here.

    def join(self) -> None:
        """A sequence decodes here from now on: plainly, until it says otherwise."""
        self._num_own += 1
        self._num_own_rows += 1

    def leave(self, num_rows: float, now_s: float, *, is_speculating: bool) -> None:
        """One that computed num_rows token rows a step; until now_s it decoded here, however long ago it told."""
        self.see(now_s)
        self._peak.add(self.num_decoding, now_s)
        self._num_own -= 1
        self._num_own_rows -= num_rows
        self._num_speculating -= is_speculating

    def change_rows(self, num_before: float, num_now: float) -> None:
        """A sequence computes num_now token rows a step instead of num_before."""
        self._num_own_rows += num_now - num_before

    def change_speculating(self, num_more: int) -> None:
        """So many sequences more ask their drafter, whether it has an answer or not."""
        self._num_speculating += num_more

    def see(self, now_s: float) -> None:
        """It is now_s: a load of a while ago is none of now."""
        self._now_s = max(self._now_s, now_s)

    def observe(self, proposer: str, load: LoadReport, num_other_sequences: int, now_s: float) -> None:
        """num_other_sequences: of other orchestrators."""
        self.see(now_s)
        self._num_others = num_other_sequences
        self._peak.add(self.num_decoding, now_s)
        if load is self._latest_load:
            return  # the same report twice teaches nothing
        self._latest_load = load
        if not self.costs.add(load):
            return
        self._recent_step_s.add(load.step_decode_time_ns / 1e9)
        self._plain_steps.add(float(load.num_step_decode_tokens <= _MAX_PLAIN_ROWS * load.num_sequences_decoding))
        if self._is_speculating(proposer):
            self.rounds(proposer).add_step(load, self.num_decoding)

    @property
    def num_decoding(self) -> int:
        """Sequences that decode or verify here. Prefills do not count, as far as they are this orchestrator's."""
        return max(1, self._num_own + self._num_others)

    @property
    def decode_load(self) -> int:
        """num_decoding, but for a moment's dip: where requests end together, as many others are about to begin."""
        return max(self.num_decoding, self._peak.at(self._now_s))

    @property
    def own_load(self) -> int:
        """Of decode_load, the part whose rounds and tokens this orchestrator counts."""
        return max(1, self.decode_load - self._num_others)

    def _is_speculating(self, proposer: str) -> bool:
        """Whether what a round takes now says what it takes when all speculate."""
        rounds = self.rounds(proposer)
        most = _MOST if rounds.answered_share >= 1 else _MOST_OF_SOME
        return self._num_speculating >= most * self._num_own and rounds.gate.is_settled(self._num_own)

    # What is measured.

    def add_decode(self, token_s: float) -> None:
        """A run took token_s for each of its tokens; 0 or less: it cannot be told."""
        if token_s <= 0:
            return
        if not self.costs.is_known and (self._latest_load is None or not self._latest_load.step_time_ns):
            # The replica has told nothing of its steps: what they seem to take has to do.
            self.costs.add_step(self.num_decoding, self.num_decoding, token_s)
        if not self._are_others_plain:
            # It waited for longer steps, and for those who drafted meanwhile.
            if self._plain.value is None:
                self._plain = MedianWindow(1.0)
            return
        self._num_verifications = 0
        self._num_plain_runs += 1
        if self._plain.value is not None and self._num_plain_runs % one_in(self._num_own):
            return  # those who decode together all measure the same steps: one moment must not count for each of them
        self._plain.add(token_s / (self._recent_step_s.value or token_s))

    def add_round(self, proposer: str, num_draft_tokens: int, elapsed_s: float, num_rows: float) -> None:
        """Proposing and verifying took elapsed_s; 0 or less: it cannot be told. num_rows: rows_per_sequence then."""
        self.count_verifications(1)
        rounds = self.rounds(proposer)
        rounds.gate.count_round()
        if elapsed_s > 0 and self._is_speculating(proposer):
            rounds.add_round(elapsed_s, num_draft_tokens, num_rows, self.num_decoding)

    def add_tokens(self, proposer: str, num_tokens: int, elapsed_s: float) -> None:
        """A sequence got num_tokens in elapsed_s, prefills left out, in whatever way."""
        rounds = self.rounds(proposer)
        if elapsed_s > 0 and rounds.gate.is_open and self._is_speculating(proposer):
            rounds.level(self.decode_load).add_tokens(num_tokens, elapsed_s, self.own_load)

    def add_vain_ask(self, proposer: str, num_run_tokens: int, elapsed_s: float) -> None:
        """The drafter had no answer; asking it and decoding num_run_tokens plainly took elapsed_s."""
        rounds = self.rounds(proposer)
        rounds.gate.count_round()
        self.count_verifications(1)
        step_s = self._recent_step_s.value
        if step_s:
            rounds.add_vain_ask(num_run_tokens, elapsed_s - num_run_tokens * step_s, self.num_decoding)

    def add_propose(self, proposer: str, num_tokens: int, elapsed_s: float, compute_s: float) -> None:
        """Waiting for num_tokens draft tokens took elapsed_s; compute_s: as the drafter says, 0: it does not."""
        self.rounds(proposer).add_propose(num_tokens, elapsed_s, compute_s, max(1, self._num_speculating))

    def count_verifications(self, num_verifications: int) -> None:
        """So much was verified or asked in vain: plain decoding is due to be measured again, at last."""
        self._num_verifications += num_verifications

    @property
    def is_measurement_due(self) -> bool:
        """Whether plain decoding was measured too long ago, or never."""
        if self._was_never_measured:
            return True
        limit = _MAX_VERIFICATIONS_PER_DECODE if self._is_alone else self._max_verifications
        return self._num_verifications >= limit

    def take_measurement(self) -> bool:
        """Whether plain decoding is to be measured now; whoever is told so has to."""
        if not self.is_measurement_due or self._was_never_measured:
            return self.is_measurement_due
        is_alone = self._is_alone
        self._num_verifications = 0
        if is_alone:
            self._recent_step_s = RunningAverage(weight=_STEP_WEIGHT)  # the steps of now verified drafts
        elif abs((self._plain.value or 1.0) - 1) > _MAX_PLAIN_EXCESS:
            # One run among those who speculate would measure their steps.
            self._doubt_plain_ratio()
        return is_alone

    @property
    def _was_never_measured(self) -> bool:
        return self._profile is None and self._plain.value is None

    @property
    def _is_alone(self) -> bool:
        return self.decode_load <= 1  # not in the moment between the requests of one of two clients

    def _doubt_plain_ratio(self) -> None:
        """What was believed too slow or too fast, by a first measurement beside prefills perhaps, must not be believed
        for ever; but ever more seldom what was measured again: it is true where steps are short beside what the
        services do for one."""
        ratio = self._plain.value or 1.0
        is_confirmed = abs(ratio - self._doubted_ratio) <= _MAX_PLAIN_EXCESS
        doubled = min(2 * self._max_verifications, _MAX_DOUBTLESS_VERIFICATIONS)
        self._max_verifications = doubled if is_confirmed else _MAX_VERIFICATIONS_PER_DECODE
        self._doubted_ratio, self._plain = ratio, MedianWindow(1.0)

    @property
    def _are_others_plain(self) -> bool:
        if self._num_speculating > (1 - _MOST) * self._num_own:
            return False
        return not self._num_others or (self._plain_steps.value or 0.0) >= _MIN_PLAIN_STEPS

    @property
    def rows_per_sequence(self) -> float:
        """Token rows that each computes in a step, on average."""
        return self._num_own_rows / max(1, self._num_own)

    # What it costs.

    def rounds(self, proposer: str) -> RoundTimes:
        """The record of a proposer's rounds here, made when it is first asked for."""
        if proposer not in self._rounds:
            self._rounds[proposer] = RoundTimes(self.costs, self._profile if proposer == "draft" else None)
        return self._rounds[proposer]

    @property
    def proposers(self) -> tuple[str, ...]:
        """Those whose rounds are recorded."""
        return tuple(self._rounds)

    def plain_s(self) -> float:
        """A token of a decode run under the load of now; 0 as long as nothing is known."""
        return self._plain_ratio * self.costs.step_s(self.decode_load, self.decode_load)

    def takes_probe(self, proposer: str, interval_tokens: int, num_own_tokens: int) -> bool:
        """As Probing says, of the sequences that this orchestrator has here."""
        probing = self.rounds(proposer).probing
        return probing.takes_probe(interval_tokens, num_own_tokens, max(1, self._num_own))

    def is_probe_due(self, proposer: str, interval_tokens: int) -> bool:
        """Whether a sequence that begins to decode here will take one."""
        return self.rounds(proposer).probing.is_due(interval_tokens, 0, self._num_own + 1)

    def plain_run_tokens(self, num_tokens: int) -> int:
        """Of a run that is decoded because drafts do not pay: num_tokens, or more under load.

        Each decision and its message cost the services a fixed time, and among many somebody decides all the time; but
        those that are left when the load goes end their runs first.
        """
        growth = min(self.num_decoding // _RUN_SEQUENCES, _MAX_RUN_GROWTH)
        if growth <= 1:
            return num_tokens
        step_s = self._recent_step_s.value
        num_affordable = int(_MAX_RUN_S / step_s) if step_s else growth * num_tokens
        return max(num_tokens, min(growth * num_tokens, num_affordable))

    def prices(
        self, proposer: str, max_draft_tokens: int, num_nodes: Callable[[int], int], answered_share: float = 1.0
    ) -> Prices:
        """num_nodes: draft tokens of a draft of that depth, which of a tree are more.

        answered_share: of what the drafter is asked.
        """
        rounds = self.rounds(proposer)
        return rounds.prices(self.decode_load, max_draft_tokens, num_nodes, self._plain_ratio, answered_share)

    @property
    def _plain_ratio(self) -> float:
        ratio = self._plain.value or 1.0
        return 1 + (ratio - 1) * min(1.0, len(self._plain) / _BELIEVED_RUNS) if ratio > 1 else ratio

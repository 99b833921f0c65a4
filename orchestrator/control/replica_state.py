"""What the requests of one orchestrator know together: who decodes on a replica, what that costs, and the plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orchestrator.control.acceptance import ProposerAcceptance
from orchestrator.control.answer_lengths import AnswerLengths
from orchestrator.control.contention import FOLLOWING_STEPS, ContentionMeter
from orchestrator.control.drafter_choice import DrafterChoice
from orchestrator.control.gate import NEW_LOAD, Gate
from orchestrator.control.mixture import Decoding, Mixture, expected_tokens
from orchestrator.control.reasons import Reason
from orchestrator.control.round_costs import Average, RoundCosts
from orchestrator.requests.kind import Kind
from pilotfish.config import SpeculationConfig
from pilotfish.step_table import StepTable

_PLAN_S = 0.1
"""A plan's lifetime, unless the load changes."""
_PEAK_S = 0.25
"""Hold the peak of the load for 0.25 s: ended requests are soon replaced."""
_CHOICES = (1, 2, 3, 5, 8, 12, 16)
"""Draft lengths that are considered: neighbours differ by a few per cent, less than can be measured."""
SAME_SPEED = 1.02
"""Another K is chosen where it is faster by this factor."""
SHARED_STEPS = 1.05
"""A K unlike that of the sequences that draft anyway must be faster by this factor: one K shares steps."""
_GOOD_ACCEPTANCE = 0.9
"""If drafting would not pay even with this acceptance, rejected drafts are not the reason."""
_TRIAL_STEPS = 1.2 * FOLLOWING_STEPS
"""Least length of a trial: contention is seen only once the target's costs have followed, by the plan after that."""
FIRST_PROBE_TOKENS = 32
"""Plain tokens of each sequence before one of them tries drafts, while off for acceptance."""


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What all do until the next plan."""

    load: int
    valid_until_s: float
    is_open: bool
    is_trial: bool
    num_draft_tokens: int
    """The best K for drafts as good as all requests' are; 0: an operator's rule forbids any."""
    gain: float
    """Predicted speed of that K over plain decoding's."""
    seconds: tuple[tuple[int, float], ...]
    """(K, seconds of a round) for each K that is considered: a request's own gain follows."""
    probabilities: tuple[float, ...]
    """Conditional acceptance by position, over all requests."""
    reason: Reason
    """Why it is closed, if it is."""
    is_guarded: bool
    """Whether it is closed as fewer tokens were got than predicted."""


class ReplicaState:
    """Who decodes on a replica; shared by the controllers of one orchestrator."""

    def __init__(self) -> None:
        self.table = StepTable()
        """The step costs that the replica published last."""
        self.proposers: dict[str, ProposerState] = {}
        self.choice = DrafterChoice()
        """Which drafter is the fastest here: a round costs something else on each machine, and at each load."""
        self.own = Decoding()
        self.num_others = 0
        """Sequences of other orchestrators that decode here."""
        self.draft_limits: Counter[int] = Counter()
        """Requests that decode here by the draft tokens that they allow."""
        self._is_batch_too_large = False
        self._peak = self._peak_before = 0
        self._peak_s = float("-inf")

    @property
    def num_decoding(self) -> int:
        return max(1, self.own.num + self.num_others)

    def load(self, now_s: float) -> int:
        """Sequences that decode here, but for a moment's dip."""
        num_decoding = self.num_decoding
        if now_s >= self._peak_s + _PEAK_S:
            self._peak_before = self._peak if now_s < self._peak_s + 2 * _PEAK_S else 0
            self._peak = 0
            self._peak_s = now_s
        self._peak = max(self._peak, num_decoding)
        return max(self._peak, self._peak_before)

    def rows(self, load: int) -> float:
        """Rows of a step in which all have what they have now, other orchestrators' sequences as many as this one's."""
        return load * self.own.num_rows / max(1, self.own.num)

    def max_draft_tokens(self, load: int, limit: int, rules: SpeculationConfig) -> int:
        """`limit`, or less where an operator's rule says so; 0: speculation is off."""
        if rules.disable_by_batch_size:
            if load >= rules.disable_by_batch_size:
                self._is_batch_too_large = True
            elif load < rules.resumes_below_batch_size:
                self._is_batch_too_large = False
            if self._is_batch_too_large:
                return 0
        ranges = rules.num_speculative_tokens_per_batch_size
        return next((min(limit, k) for first, last, k in ranges if first <= load <= last), limit)


class ProposerState:
    """What one proposer's drafts are worth on one replica."""

    def __init__(self, replica: ReplicaState, acceptance: ProposerAcceptance, num_switches: Counter[bool]) -> None:
        """num_switches: those of all gates."""
        self.replica = replica
        self.acceptance = acceptance
        self.costs = RoundCosts(replica.table)
        self.gate = Gate(num_switches)
        self._contention = ContentionMeter(self.costs)
        self.governed = Decoding()
        """The sequences that the gate decides for: those of mode auto."""
        self.num_plain_tokens = 0
        """Plain tokens of all requests since the last probe."""
        self.probe_tokens = FIRST_PROBE_TOKENS
        """Plain tokens of each sequence before the next probe."""
        self.mixture = Mixture(1, replica.own, self.governed, self.costs)
        """The sequences that the plan was made for."""
        self.measured_gain = Average()
        """Speed over plain decoding of the sequences that drafted last, in whatever mode."""
        self._empty_s = 0.0
        self._losses: dict[int, float] = {}
        """What others lose by rounds of each K: see Mixture.loss."""
        self._plan: ReplicaPlan | None = None
        self._k = 0

    def plan(self, now_s: float, rules: SpeculationConfig) -> ReplicaPlan:
        """What holds now."""
        plan, replica = self._plan, self.replica
        load = replica.load(now_s)
        if plan and now_s < plan.valid_until_s and plan.load / NEW_LOAD < load < plan.load * NEW_LOAD:
            return plan
        limit = max(k for k, num_requests in replica.draft_limits.items() if num_requests)
        self._plan = self._make_plan(now_s, load, limit, replica.max_draft_tokens(load, limit, rules))
        return self._plan

    def _make_plan(self, now_s: float, load: int, max_draft_tokens: int, limit: int) -> ReplicaPlan:
        """max_draft_tokens: the most of any round. limit: the same by operators' rules; 0: speculation is off."""
        costs = self.costs
        self.mixture = mixture = Mixture(load, self.replica.own, self.governed, costs)
        self._empty_s = costs.empty_s(load)
        beliefs = self.acceptance.probabilities(max_draft_tokens)
        choices = [k for k in (*_CHOICES, limit) if k <= max(1, limit)]
        rows = {k: mixture.rows(self.num_rows(k)) for k in choices}
        seconds = {k: costs.seconds(load, k, rows[k]) for k in choices}
        self._losses = {k: mixture.loss(rows[k], beliefs) for k in choices}
        gains = {k: self.gain(beliefs, k, seconds[k]) for k in choices}
        best = max(gains, key=lambda k: gains[k])
        if mixture.other_k in gains and gains[best] < SHARED_STEPS * gains[mixture.other_k]:
            self._k = mixture.other_k
        elif self._k not in gains or gains[best] > SAME_SPEED * gains[self._k]:
            self._k = best
        gain = gains[self._k] if limit else 0.0
        # With good drafts that take no time and are never empty: a drafter may become better.
        step_s = costs.step_s(mixture.plain_rows)
        steps = {k: mixture.plain_s / step_s * costs.step_s(rows[k]) for k in choices}
        full = {k: costs.step_s(mixture.rows(k + 1)) for k in choices}
        speeds = (expected_tokens((_GOOD_ACCEPTANCE,) * k, k) * step_s / full[k] for k in choices)
        can_pay = limit > 0 and any(speed > SAME_SPEED for speed in speeds)
        can_steps_pay = any(self.gain(beliefs, k, steps[k]) > SAME_SPEED for k in choices)
        # While it is off, probes measure acceptance: a trial measures the rounds' overhead.
        can_trial_pay = can_pay and (can_steps_pay or self.gate.is_open is not False)
        trial_s = max(8 * seconds[self._k], _TRIAL_STEPS * step_s)
        is_open = self.gate.update(now_s, load, gain, can_pay=can_trial_pay, trial_s=trial_s) and limit > 0
        is_trial = self.gate.is_trial
        self._contention.note(now_s, load, is_drafting=is_open)
        if limit == 0:
            reason = Reason.BATCH_SIZE
        elif is_trial and not is_open:
            reason = Reason.MEASURING
        elif can_steps_pay:
            reason = Reason.ROUND_TIME
        else:
            reason = Reason.ACCEPTANCE if can_pay else Reason.LOAD
        k = self._k if limit else 0
        return ReplicaPlan(
            load,
            now_s + _PLAN_S,
            is_open,
            is_trial,
            k,
            gain,
            tuple(seconds.items()),
            beliefs,
            reason,
            self.gate.is_guarded,
        )

    @property
    def loss(self) -> float:
        """What a round costs others, by the plan."""
        return self._losses.get(self._k, 0.0)

    @property
    def expected_gain(self) -> float | None:
        """Speed over plain decoding that is expected of drafts: by the last plan, or where the target drafts, by what
        its tokens took. None: nothing is known, or an operator's rule forbids drafts."""
        if self._plan is not None:
            return self._plan.gain if self._plan.num_draft_tokens else None
        return self.costs.in_target_gain(self.replica.num_decoding) if self.costs.has_in_target else None

    @property
    def num_draft_tokens(self) -> int:
        """K of the last plan; 0: there is none."""
        return 0 if self._plan is None else self._plan.num_draft_tokens

    def note_speed(self, now_s: float, num_tokens: int, elapsed_s: float) -> None:
        """A round or drafted run took elapsed_s."""
        load = self.replica.load(now_s)
        self.measured_gain.add(num_tokens * self.costs.plain_s(load, load) / elapsed_s, elapsed_s)

    def num_rows(self, k: int) -> float:
        """Token rows that a sequence which asks for K has in a step, on average."""
        return 1 + (1 - self.acceptance.empty_share) * self.acceptance.draft_length(k)

    def gain(self, probabilities: Sequence[float], k: int, round_s: float) -> float:
        """Speed of rounds of K over plain decoding; empty proposals and the runs after them are among them."""
        num_tokens, empty = expected_tokens(probabilities, k), self.acceptance.empty_share
        run_tokens = self.acceptance.empty_run_tokens
        num_tokens = (1 - empty) * num_tokens + empty * run_tokens
        round_s = (1 - empty) * round_s + empty * (run_tokens * self.mixture.plain_s + self._empty_s)
        return num_tokens * self.mixture.plain_s / round_s - self._losses[k]


class ControlState:
    """What all requests of one orchestrator know."""

    def __init__(self, config: SpeculationConfig) -> None:
        self.config = config
        self.replicas: dict[str, ReplicaState] = defaultdict(ReplicaState)
        """Target replicas that answered, by their ids."""
        self.acceptance: dict[str, ProposerAcceptance] = defaultdict(ProposerAcceptance)
        """Acceptance by the proposer's name."""
        self.answer_lengths = AnswerLengths()
        self.num_decisions: Counter[Reason] = Counter()
        self.num_switches: Counter[bool] = Counter()
        """Times that a replica's sequences began (True) and ceased to speculate."""
        self.num_rounds_by_k: Counter[int] = Counter()
        """Rounds by the draft tokens that they asked for; 0: plain runs."""
        self.latest_reason: Reason | None = None
        """Reason of the last decision, but for those about a first or a last token."""

    def proposer(self, replica_id: str, name: str) -> ProposerState:
        """The proposer's state on a target replica; made when it is first asked for."""
        replica = self.replicas[replica_id]
        if name not in replica.proposers:
            replica.proposers[name] = ProposerState(replica, self.acceptance[name], self.num_switches)
        return replica.proposers[name]

    def choose_proposer(self, replica_id: str, kind: Kind, proposers: Sequence[str]) -> str:
        """The proposer for an answer of this kind on a target replica; the first one where nothing is known yet."""
        replica = self.replicas.get(replica_id)
        return replica.choice.choose(kind, proposers) if replica else proposers[0]

    def retain(self, replica_ids: Collection[str]) -> None:
        """Forget the replicas that are not among these."""
        for replica_id in self.replicas.keys() - replica_ids:
            del self.replicas[replica_id]

    def is_open(self, proposer: str) -> bool:
        """Whether a new request is likely to speculate: somewhere that is on, or not known yet."""
        gates = [
            replica.proposers[proposer].gate for replica in self.replicas.values() if proposer in replica.proposers
        ]
        return not gates or any(gate.is_open is not False for gate in gates)

    def max_draft_tokens(self, now_s: float, limit: int) -> int:
        """The most draft tokens of a new request, wherever it goes, by operators' rules: at most `limit`."""
        replicas = list(self.replicas.values()) or [ReplicaState()]
        return min(replica.max_draft_tokens(replica.load(now_s), limit, self.config) for replica in replicas)

    @property
    def plain_token_s(self) -> float:
        """A step of plain decoding where fewest decode; 0: not known."""
        idlest = min(self.replicas.values(), key=lambda replica: replica.num_decoding, default=None)
        return idlest.table.step_s(idlest.num_decoding) if idlest else 0.0

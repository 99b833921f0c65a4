"""What the rounds of one request teach: of its own drafts, and for all requests."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.control.acceptance_belief import AcceptanceBelief
from orchestrator.control.answer_share import AnswerShare
from orchestrator.control.decision import Observation
from orchestrator.control.limitation import Limitation
from orchestrator.control.measurements import Measurements
from orchestrator.control.prices import Asking
from orchestrator.control.probe import Probe
from orchestrator.control.probing import TokenCounter
from orchestrator.control.replica_record import MEASURING_TOKENS, ReplicaRecord
from orchestrator.control.seat import Seat
from orchestrator.requests.request import GenerationRequest
from pilotfish.config import SpeculationConfig


@dataclass(frozen=True, slots=True)
class _Unlearned:
    """A round that is over, and taught nothing yet: the decision after it may not wait for that."""

    observation: Observation
    num_rows: float
    """Rows of each sequence on the replica, when the round was over."""


class Lessons:
    """Rounds are taken in at once, and learned from when there is time (decision 0010)."""

    def __init__(
        self,
        request: GenerationRequest,
        measurements: Measurements,
        config: SpeculationConfig,
        seat: Seat,
        probe: Probe,
        limitation: Limitation,
    ) -> None:
        """seat, probe and limitation: of the request."""
        self._mode = request.speculation.mode
        self._max_draft_tokens = request.num_speculative_tokens
        self._decode_run_tokens = config.decode_run_tokens
        self._proposer_name = request.speculation.proposer
        self._proposer = measurements.proposer(self._proposer_name)
        self._seat = seat
        self._probe = probe
        self._limitation = limitation
        self._acceptance = AcceptanceBelief(self._proposer.acceptance)
        self._answers = AnswerShare(self._proposer.answers)
        self._empty_run_tokens = 1
        """Decoded plainly where the drafter has no idea: doubled each time, back to 1 when a draft token is accepted.
        Asking again costs a round trip in which the target waits."""
        self._num_plain_tokens = 0
        """Since the last draft, or the last one that went wrong."""
        self._last_arrival_s = 0.0
        """When what came before the last round's verdict did."""
        self._counters: tuple[TokenCounter, ...] = ()
        """What waits for the tokens of the run under way."""
        self._unlearned: _Unlearned | None = None

    @property
    def empty_run_tokens(self) -> int:
        """To decode plainly where the drafter has no idea."""
        return self._empty_run_tokens

    @property
    def num_plain_tokens(self) -> int:
        """Since the last draft, or the last one that went wrong."""
        return self._num_plain_tokens

    @property
    def answered_share(self) -> float:
        """Of what the drafter is asked for this request."""
        return self._answers.value

    def asking(self, num_positions: int) -> Asking:
        """What this request expects of its drafter."""
        return Asking(self._acceptance.probabilities(num_positions), self.answered_share, self._empty_run_tokens)

    def take(self, observation: Observation) -> None:
        """Count it where it decodes; what it teaches can wait."""
        self._seat.take(observation)
        self._unlearned = _Unlearned(observation, self._seat.replica.rows_per_sequence)

    def learn(self) -> None:
        """From what was taken, if that was not done yet."""
        rest, self._unlearned = self._unlearned, None
        if rest is not None:
            self.count_plain(rest.observation.num_decoded_tokens)
            self._learn(rest.observation, rest.num_rows)
            self._last_arrival_s = rest.observation.now_s

    def tell_when_decoded(self, counters: tuple[TokenCounter, ...]) -> None:
        """What waits for the tokens of the run that begins."""
        self._counters = counters

    def count_plain(self, num_tokens: int) -> None:
        """So many of the run that was decided for last were decoded."""
        for count in self._counters:
            count(num_tokens)
        self._counters = ()

    def begin_probe(self) -> None:
        """Drafts are tried although they do not seem to pay."""
        self._probe.begin()
        self._empty_run_tokens = 1

    def fail_probe(self) -> None:
        """The one under way is over; drafts were not found to pay."""
        self._probe.end()
        self._proposer.add_failed_probe()

    def _learn(self, observation: Observation, num_rows: float) -> None:
        """num_rows: of each sequence on the replica, when the round was over."""
        replica, reads_first = self._seat.replica, self._reads_first(observation)
        was_asked = observation.num_requested_tokens > 0 and not observation.is_draft_deferred
        is_vain = was_asked and observation.num_decoded_tokens > 0 and not observation.draft_problem
        is_probe = self._probe.is_under_way
        if was_asked:
            # An empty proposal was waited for, too. A probe's tells nothing: none of it was made ahead, and those who
            # decode plainly meanwhile may be many.
            if not reads_first and not is_probe:
                replica.add_propose(
                    self._proposer_name,
                    observation.num_requested_tokens,
                    observation.propose_s,
                    observation.propose_compute_s,
                )
            if not observation.draft_problem:  # of a drafter that fails others take care
                self._learn_of_answers(replica, has_answer=not is_vain)
            self._learn_from_proposal(observation)
        self._num_plain_tokens += observation.num_decoded_tokens
        # A first run holds the prefill, which is no decode step.
        is_first = observation.num_output_tokens == observation.num_decoded_tokens
        if not observation.step_s or is_first:
            return
        elapsed_s = observation.round_s(self._last_arrival_s)
        # Only they follow the promise. What cut into a run came in a time that is not known.
        is_cut = observation.num_draft_tokens > 0 and observation.num_decoded_tokens > 0
        if self._mode == "auto" and not is_cut and not observation.draft_problem:
            replica.add_tokens(self._proposer_name, observation.num_committed_tokens, elapsed_s)
        # The first question waits for the prompt to be read, and a draft that cut into the run has a time of its own.
        num_before = observation.num_output_tokens - observation.num_decoded_tokens
        if is_vain and not is_probe and num_before > 1 and not observation.num_draft_tokens:
            replica.add_vain_ask(self._proposer_name, observation.num_decoded_tokens, elapsed_s)
        if observation.num_decoded_tokens >= MEASURING_TOKENS:
            replica.add_decode(observation.token_s - observation.prefill_s)
        elif not observation.num_decoded_tokens and not reads_first:
            replica.add_round(self._proposer_name, observation.num_requested_tokens, elapsed_s, num_rows)

    def _learn_of_answers(self, replica: ReplicaRecord, *, has_answer: bool) -> None:
        self._answers.add(has_answer=has_answer)
        # Where only those draft whom it helps, their answers are better than everybody's. A probe is one question.
        if self._probe.is_under_way:
            is_anybodys = not self._probe.num_rounds
        else:
            is_anybodys = self._mode == "on" or replica.rounds(self._proposer_name).gate.is_open is not False
        if is_anybodys:
            self._proposer.answers.add(has_answer=has_answer)

    def _reads_first(self, observation: Observation) -> bool:
        """Whether the proposal had to wait until the drafter had read the prompt, or what was decoded plainly."""
        return self._num_plain_tokens >= self._decode_run_tokens or observation.num_output_tokens <= 1

    def _learn_from_proposal(self, observation: Observation) -> None:
        num_accepted = observation.num_accepted_tokens
        if observation.num_draft_tokens:
            depth = observation.draft_depth or observation.num_draft_tokens
            self._acceptance.add(depth, num_accepted)
            self._proposer.add_shape(depth, observation.num_draft_tokens)
        else:
            self._empty_run_tokens = min(2 * self._empty_run_tokens, self._decode_run_tokens)
        if num_accepted:
            self._empty_run_tokens = 1
        if observation.draft_problem:
            self._limitation.note_failure(observation.draft_problem)
        if not observation.num_draft_tokens and not observation.draft_problem:
            if self._probe.is_under_way:
                self._num_plain_tokens = 0
                self._probe.end()
                self._proposer.add_vain_probe()
            return
        self._num_plain_tokens = 0
        if not self._probe.is_under_way:
            return
        if observation.num_draft_tokens and num_accepted >= (observation.draft_depth or observation.num_draft_tokens):
            self._probe.go_on(self._max_draft_tokens)
            return
        if observation.num_draft_tokens:  # of a drafter that fails others take care
            self._probe.add_rejection()
        self.fail_probe()

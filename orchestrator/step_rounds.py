"""Rounds over whole steps of reasoning (SpecReason, 2504.07891): a draft model writes a step, the target judges it.

A step that stands is committed as it is, which is lossy. Where one falls, or cannot be written or judged, the target
writes a step itself, in rounds over tokens as ever: a request never fails of it.
"""

from __future__ import annotations

import logging
import time
from collections import abc
from collections.abc import Collection, Mapping

from orchestrator.answers.sequence import Sequence
from orchestrator.awaited_drafter import AwaitedDrafter
from orchestrator.control.reasons import Reason
from orchestrator.prompt_scoring import PromptScorer
from orchestrator.requests.reasoning import MAX_MARK_TOKENS, ReasoningMarks, ReasoningParser
from orchestrator.requests.request import GenerationRequest
from orchestrator.rounds.commands import AcceptedStep
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.drafter_clients.sequence_pool import DraftReplicas
from orchestrator.rounds.peer import Replica
from orchestrator.rounds.steps import NoSteps
from orchestrator.step_judges import LogprobJudge, ScoreJudge, StepJudge
from pilotfish.config import StepsConfig
from pilotfish.drafter_registry import LOOKUPS
from pilotfish.errors import PilotfishError
from pilotfish.messages import Verdict
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.speculation.reasoning_steps import CHUNK_TOKENS, StepText
from pilotfish.types import Timings

_log = logging.getLogger(__name__)


class StepRounds(NoSteps):
    """See the module. One per request."""

    are_possible = True

    def __init__(
        self,
        request: GenerationRequest,
        drafter: AwaitedDrafter,
        judge: StepJudge,
        *,
        token_bytes: Mapping[int, bytes],
        thoughts: ReasoningParser | None = None,
        ends: abc.Sequence[bytes],
    ) -> None:
        """drafter: writes the steps, and nothing else. thoughts: finds where reasoning ends; None: only the request
        says so. ends: the marks that end a step."""
        super().__init__()
        self._options = request.speculation
        self._drafter = drafter
        self._judge = judge
        threshold = request.speculation.step_threshold
        self._least_mark = judge.least_mark if threshold is None else threshold
        self._token_bytes = token_bytes
        self._thoughts = thoughts
        self._ends = ends
        self._length = len(request.prompt_token_ids)
        """Tokens that were looked at for the ends of steps and of reasoning."""
        self._own_step: StepText | None = None
        """The step that the target writes now; None: it writes none."""
        self._own_end_length = 0
        """Committed tokens at which the target's own step ends at the latest."""
        self._pause_tokens = CHUNK_TOKENS
        """Tokens the target writes after a step that the drafter failed to write: twice as many each time."""

    def prepare(self, sequence: Sequence) -> None:
        self._drafter.prepare(sequence)

    def is_due(self, sequence: Sequence) -> bool:
        self._look_at(sequence)
        # The first token waits for no drafter, as ever.
        is_first = not sequence.num_output_tokens
        if is_first or sequence.is_finished or self._own_step is not None or self._room(sequence) < 1:
            if self._is_over(sequence):
                self._drafter.close()  # its place is another's
            return False
        absence = self._drafter.unavailable_reason
        if absence:
            self.limitation.note(Reason.NO_STEPS, absence)
        return not absence

    async def next(self, sequence: Sequence) -> AcceptedStep | None:
        accepted: AcceptedStep | None = None
        if self.is_due(sequence):
            step = await self._written(sequence)
            num_own_tokens = self._options.step_max_tokens
            if step.problem:
                self.limitation.note(Reason.NO_STEPS, step.problem)
                num_own_tokens = min(self._pause_tokens, num_own_tokens)
                self._pause_tokens *= 2
            else:
                self._pause_tokens = CHUNK_TOKENS
            if step.token_ids:
                accepted = await self._judged(sequence, step)
            if accepted is None:
                self._drafter.rewind(sequence.length)
                self._own_step = StepText(self._ends)
                self._own_end_length = sequence.length + num_own_tokens
        return accepted

    def close(self) -> None:
        self._drafter.close()

    def _room(self, sequence: Sequence) -> int:
        """Tokens that a step may have. The last one of the answer, and all behind the reasoning, are the target's."""
        if self._thoughts is not None and not self._thoughts.is_inside:
            return 0
        num_left = min(self._options.step_tokens - sequence.num_output_tokens, sequence.num_remaining_tokens - 1)
        return min(self._options.step_max_tokens, num_left)

    def _is_over(self, sequence: Sequence) -> bool:
        """Whether no step can follow any more."""
        is_behind = self._thoughts is not None and self._thoughts.is_behind
        return is_behind or sequence.num_output_tokens >= self._options.step_tokens

    def _look_at(self, sequence: Sequence) -> None:
        """Take in what was committed since."""
        for token_id in sequence.tokens_since(self._length):
            piece = self._token_bytes[token_id]
            if self._thoughts is not None:
                self._thoughts.push(piece.decode(errors="replace"))
            if self._own_step is not None and self._own_step.add(piece):
                self._own_step = None
        self._length = sequence.length
        if self._length >= self._own_end_length:
            self._own_step = None

    async def _written(self, sequence: Sequence) -> Draft:
        """The drafter's step: an empty one where that comes to nothing, or would end the answer."""
        started_s = time.monotonic()
        step: tuple[int, ...] = ()
        text, room, is_whole = StepText(self._ends), self._room(sequence), False
        stop_token_ids = frozenset(sequence.request.sampling.stop_token_ids)
        while len(step) < room and not is_whole:
            draft = await self._drafter.propose(sequence.with_tokens(step), min(CHUNK_TOKENS, room - len(step)))
            if not draft.token_ids:
                return Draft(problem=draft.problem or "the draft model has no idea")
            for token_id in draft.token_ids:
                is_last = token_id in stop_token_ids
                if not is_last:
                    step = (*step, token_id)
                is_whole = is_last or text.add(self._token_bytes[token_id])
                if is_whole:
                    break
        return Draft(step, elapsed_s=time.monotonic() - started_s)

    async def _judged(self, sequence: Sequence, step: Draft) -> AcceptedStep | None:
        """None: it falls."""
        started_ns = time.monotonic_ns()
        try:
            judgement = await self._judge.judge(sequence, step.token_ids)
        except PilotfishError as error:
            _log.warning("a step was not judged, the target writes it: %s", error)
            self.limitation.note(Reason.NO_STEPS, f"a step was not judged: {error}")
            return None
        self.num_steps += 1
        if judgement.mark < self._least_mark:
            return None
        self.num_accepted_steps += 1
        num_tokens = len(step.token_ids)
        verdict = Verdict(
            sequence_id=0,
            base_length=sequence.length,
            num_draft_tokens=num_tokens,
            num_accepted_tokens=num_tokens,
            token_ids=step.token_ids,
            logprobs=judgement.logprobs,
            timings=Timings(compute_time_ns=time.monotonic_ns() - started_ns),
        )
        return AcceptedStep(step, verdict)


def step_rounds(
    request: GenerationRequest,
    drafter: AwaitedDrafter,
    scorer: PromptScorer,
    tokenizer: Tokenizer,
    marks: ReasoningMarks | None,
    config: StepsConfig,
) -> StepRounds:
    """The steps of a request to a model that thinks between marks, or does not say where it thinks.

    Raises InvalidRequestError for a model that cannot judge as the request wants it.
    """
    is_scored = request.speculation.step_judge == "score"
    ends, thoughts = [end.encode() for end in config.ends], None
    if marks is not None:
        prompt_end = tokenizer.decode(request.prompt_token_ids[-MAX_MARK_TOKENS:], skip_special=False)
        thoughts = ReasoningParser(marks, is_inside=prompt_end.rstrip().endswith(marks.begin))
        ends.append(marks.end.encode())
    return StepRounds(
        request,
        drafter,
        ScoreJudge(scorer, tokenizer, config) if is_scored else LogprobJudge(scorer),
        token_bytes=tokenizer.bytes_by_token(skip_special=False),
        thoughts=thoughts,
        ends=ends,
    )


class DraftModels:
    """A draft pool's replicas whose drafters are language models: lookups and heads write no steps. See
    DraftReplicas."""

    def __init__(self, pool: DraftReplicas) -> None:
        self._pool = pool

    @property
    def absence_reason(self) -> str:
        return "the drafter is no language model" if self._pool.pick() else self._pool.absence_reason

    @property
    def is_full(self) -> bool:
        return self._pool.is_full

    def pick(self, avoid: Collection[str] = ()) -> Replica | None:
        link = self._pool.pick(avoid)
        is_model = link is not None and not link.model.feature_layers and link.model.proposer not in LOOKUPS
        return link if is_model else None

"""The engine of a model that is computed here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import torch

from pilotfish.config import EngineConfig
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.core.drafted import Drafted
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.forced_drafts import ForcedTokens
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import InTargetDrafter, InTargetDrafting
from pilotfish.engine.core.kept_rows import KeptRows, kept_rows
from pilotfish.engine.core.model_engine import Decided, ModelEngine
from pilotfish.engine.core.proposing import draft_among, draft_plan
from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.step_rows import build_step
from pilotfish.engine.learning.recorder import Piece, Recorder
from pilotfish.engine.learning.recording import MAX_TEXT_TOKENS
from pilotfish.messages import EngineCommand, Event, LearnVocabulary, Verdict
from pilotfish.models.decoder import Decoder
from pilotfish.speculation.results import Outcome
from pilotfish.speculation.rounds import Round, verify
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.speculation.shared_vocabulary import SharedVocabulary
from pilotfish.types import ModelInfo


class EngineCore(ModelEngine):
    """See ModelEngine."""

    def __init__(
        self,
        decoder: Decoder,
        config: EngineConfig,
        model: ModelInfo,
        *,
        top_m: int = 32,
        drafter: InTargetDrafter | None = None,
        features: FeatureStore | None = None,
        grammars: Grammars | None = None,
        forced_tokens: ForcedTokens | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(
            config,
            model,
            grammars=grammars,
            clock_ns=clock_ns,
            prefix_caching=config.prefix_caching,
            move_kv=decoder.move_kv,
            step_costs=StepCosts(),
            forced_tokens=forced_tokens,
        )
        self.given: Mapping[int, Sequence[int]] = {}
        """Texts, prompt and answer, by sequence: it gets their tokens in place of chosen ones, as far as the text goes,
        to see what would have been drafted for it. Such a sequence must have no drafts to verify."""
        self._decoder = decoder
        self._top_m = top_m
        self._vocabularies: dict[int, SharedVocabulary] = {}
        """Vocabularies of the targets that are drafted for in tokens of theirs."""
        num_blocks = self.kv_cache.pool.num_usable + 1
        num_bytes = decoder.allocate(num_blocks).num_bytes
        self._features = features
        self._in_target: InTargetDrafting | None = None
        if drafter is not None:
            num_bytes += drafter.allocate(num_blocks)
            self._in_target = InTargetDrafting(
                drafter,
                self.kv_cache,
                max_context_tokens=model.max_context_tokens,
                step_s=lambda num_rows: self.step_costs.step_ns(num_rows) / 1e9,
                clock_ns=clock_ns,
                forced=self._forced,
                version=lambda: self.drafter_version,
            )
        if features is not None:
            features.allocate(num_blocks)
        self.kv_bytes_per_block = num_bytes // num_blocks

    def begin_with(self, step_costs: StepCosts) -> None:
        """Begin anew, as if nothing had been computed yet, but with what steps cost; no sequence is open. From now on
        load reports contain the costs."""
        self.step_costs = step_costs
        self._publishes_costs = True
        self._prefill_ns = 0.0
        self.kv_cache.pool.clear_cache()

    def _take(self, command: EngineCommand, now_ns: int) -> Event | None:
        if isinstance(command, LearnVocabulary):
            shared = SharedVocabulary(command.drafter_ids, command.target_ids, self._decoder.device)
            self._vocabularies[command.vocabulary] = shared
        return super()._take(command, now_ns)

    @torch.inference_mode()
    def _compute(
        self, scheduled: Sequence[ScheduledRows], verified: Sequence[ScheduledRows], drafting: Sequence[ScheduledRows]
    ) -> tuple[list[Outcome], list[Drafted]]:
        logits = self._decoder.forward(build_step(scheduled))
        num_verified_rows = sum(rows.num_logit_rows for rows in verified)
        outcomes = verify(logits[:num_verified_rows], [_round(rows) for rows in verified])
        if self.given:
            outcomes = [self._as_given(rows.sequence, own) for rows, own in zip(verified, outcomes, strict=True)]
        plans = [draft_plan(rows.sequence) for rows in drafting]
        return outcomes, draft_among(logits[num_verified_rows:], plans, self._top_m, self._vocabularies)

    def _as_given(self, sequence: EngineSequence, outcome: Outcome) -> Outcome:
        text, place = self.given.get(sequence.sequence_id, ()), len(sequence.tokens)
        return msgspec.structs.replace(outcome, token_ids=(text[place],)) if place < len(text) else outcome

    @torch.inference_mode()
    def _keep(
        self, scheduled: Sequence[ScheduledRows], decided: Decided, verdicts: list[Verdict], elapsed_ns: int
    ) -> list[Verdict]:
        if self._features is None and self._in_target is None:
            return verdicts
        kept = kept_rows(scheduled, {rows.sequence.sequence_id: outcome for rows, outcome in decided})
        if self._features is not None:
            self._features.keep(kept)
            for index, (verdict, (rows, _)) in enumerate(zip(verdicts, decided, strict=True)):
                # The last verdict of a task, as long as there is more to come, brings what its command asked for.
                sequence = rows.sequence
                is_due = sequence.task is None and verdict.finish_reason is None
                if is_due and sequence.feature_request is not None:
                    verdicts[index] = msgspec.structs.replace(verdict, features=self._features.take(sequence))
        if self._recorder is not None:
            self._record(self._recorder, kept)
        if self._in_target is not None:
            verdicts = self._draft_in_target(self._in_target, kept, decided, verdicts, elapsed_ns)
        return verdicts

    def _record(self, recorder: Recorder, kept: Sequence[KeptRows]) -> None:
        """Hand over what may be learned from: of a long prompt its end alone."""
        pieces: list[Piece] = []
        step_rows: list[int] = []
        for rows in kept:
            tokens, recording = rows.sequence.tokens, rows.sequence.recording
            if recording is not None and rows.end_position > len(tokens) - MAX_TEXT_TOKENS:
                pieces.append(Piece(recording, rows.first_position, tokens[rows.first_position : rows.end_position]))
                step_rows.extend(rows.step_rows)
        if pieces:
            index = to_device(step_rows, torch.int64, self._decoder.device)
            recorder.add(pieces, self._decoder.features.index_select(0, index))


def _round(rows: ScheduledRows) -> Round:
    """What the target decides for this sequence; a decode is a verification of nothing."""
    sequence = rows.sequence
    return Round(
        sampling=sequence.sampling,
        first_position=len(sequence.tokens),
        draft_token_ids=rows.drafts.token_ids,
        draft_probs=rows.drafts.probs,
        history=sequence.history,
        tree=rows.drafts.tree,
        constraint=sequence.grammar,
        token_lists=sequence.token_lists,
    )

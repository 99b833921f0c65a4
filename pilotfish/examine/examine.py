"""Examines drafters: the target answers, each drafts along, rounds are replayed and timed, and speeds predicted."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from draft_service.translation.vocabularies import Vocabularies
from pilotfish.bench.machine import this_machine
from pilotfish.config import Config
from pilotfish.drafter_registry import DRAFTERS, Needs
from pilotfish.emulation.cost_measurement import ShapeTimes
from pilotfish.emulation.profiles.step_cost import MeasuredCost
from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.process.calibration import calibrate
from pilotfish.engine.process.factory import build_engine
from pilotfish.examine.acceptance import acceptance_of
from pilotfish.examine.costs import (
    DrafterPlace,
    MeasuredRoundCosts,
    context_tokens_of,
    loads_of,
    measure_draft_model,
    measure_in_target,
)
from pilotfish.examine.drafted_answer import DraftedAnswer
from pilotfish.examine.drafters import NamedDrafter, configured_for
from pilotfish.examine.faults.diagnosis import diagnose, template_fault
from pilotfish.examine.prediction import advise, predict
from pilotfish.examine.processors import shares_processors
from pilotfish.examine.questions import Order, questions_of, recent_questions, served_questions
from pilotfish.examine.rehearsal import DraftEngine, DraftWatch, FreeRows, Question, answer_all, draft_all
from pilotfish.examine.result import DrafterResult, Examination, Finding
from pilotfish.examine.translated_drafter import TranslatedDrafter
from pilotfish.examine.verification import measure_verification
from pilotfish.examine.virtual_target import BRANCHING
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.speculation.trees.tree import MAX_TREE_NODES
from pilotfish.step_table import StepTable
from pilotfish.types import TreeRequest

_MAX_TEMPLATE_PROMPTS = 12

Report = Callable[[str, int, int], None]
"""Called with what is done, how much of it is done and how much there is to do."""


@dataclass(frozen=True)
class _Measured:
    answers: Sequence[DraftedAnswer]
    costs: MeasuredRoundCosts
    max_context_tokens: int = 0
    """The draft model's longest context; 0: it is no model."""
    findings: Sequence[Finding] = ()


@dataclass
class _Examiner:
    order: Order
    report: Report
    questions: Sequence[Question] = ()
    answers: Sequence[DraftedAnswer] = ()
    """The target's own, as soon as there are any."""
    same_choices: float | None = None
    """See ServiceMeasured."""
    steps: StepTable = field(default_factory=StepTable)
    verification: MeasuredCost | None = None
    fingerprint: str = ""
    """Fingerprint of the target's tokenizer."""
    tokenizer_path: str = ""
    """Folder of the target's tokenizer."""

    def examine(self, drafter: NamedDrafter) -> DrafterResult:
        """Raises PilotfishError kinds of loading and ConfigError."""
        config = configured_for(self.order.config, drafter)
        measured = self._in_target(config, drafter) if drafter.is_in_target else self._apart(config, drafter)
        gc.collect()  # the engine is gone: the next one needs the memory
        self.report(f"{drafter.name}: experiments", 0, 0)
        findings = diagnose(
            config,
            drafter,
            self.questions,
            measured.answers,
            measured.max_context_tokens,
            is_explained=bool(measured.findings),
        )
        return _result(drafter, config, measured, [*measured.findings, *findings], self.order)

    def _in_target(self, config: Config, drafter: NamedDrafter) -> _Measured:
        watches: list[DraftWatch] = []

        def watch(wrapped: InTargetDrafter) -> DraftWatch:
            watches.append(DraftWatch(wrapped))
            return watches[-1]

        core = self._target(config, drafter.name, watch)
        kind, core.step_costs = DRAFTERS[drafter.kind], FreeRows()
        tree = TreeRequest(MAX_TREE_NODES, BRANCHING) if kind.gives_trees else None
        answers = self._answer(core, drafter.name, watches[0], tree)
        self._time_steps(core, config, drafter.name)
        max_rows, is_trained = config.target.engine.max_batch_tokens, kind.needs is not Needs.TEXT
        num_draft_tokens = self.order.num_draft_tokens
        costs = measure_in_target(core, watches[0], num_draft_tokens, self.steps, max_rows, grows=is_trained)
        place = DrafterPlace.EITHER if kind.needs is Needs.FEATURES else DrafterPlace.TARGET
        costs = self._with_services(replace(costs, place=place), config)
        asks_anew = is_trained and not self.order.recent and not self.order.service
        fault = self._template_fault(core, watches[0], answers, drafter.name) if asks_anew else None
        return _Measured(answers, costs, findings=[fault] if fault else [])

    def _template_fault(
        self, core: EngineCore, watch: DraftWatch, answers: Sequence[DraftedAnswer], name: str
    ) -> Finding | None:
        """Ask some prompts once more: with the model's own chat template if there is another, else without any."""
        chosen = replace(self.order, prompts=self.order.prompts[:_MAX_TEMPLATE_PROMPTS], temperature=0.0)
        is_replaced = bool(self.order.config.orchestrator.chat_template)
        how = "with the model's own template" if is_replaced else "without a chat template"
        questions = questions_of(core, chosen, uses_template=is_replaced, template="")
        progress = self._progress(f"{name}: prompts {how}", len(questions) * chosen.max_tokens)
        others = answer_all(core, questions, chosen.max_tokens, 1, watch, progress)
        served = [answer for answer in answers if answer.temperature == 0][: len(others)]
        return template_fault(acceptance_of(served, 1), acceptance_of(others, 1), how)

    def _apart(self, config: Config, drafter: NamedDrafter) -> _Measured:
        if not self.answers:
            core = self._target(config, drafter.name, None)
            self._answer(core, drafter.name, None)
            self._time_steps(core, config, drafter.name)
            del core
        self.report(f"{drafter.name}: loads", 0, 0)
        drafts = build_engine(config, "draft")
        progress = self._progress(f"{drafter.name}: drafts", sum(len(each.token_ids) - 1 for each in self.answers))
        drafting = self._translated(drafts, config)
        answers = draft_all(drafting, self.questions, self.answers, self.order.num_draft_tokens, progress)
        self.report(f"{drafter.name}: timing", 0, 0)
        costs = measure_draft_model(drafts, self.steps, config.target.engine.max_batch_tokens)
        costs = self._with_services(costs, config)
        return _Measured(answers, costs, max_context_tokens=drafts.model.max_context_tokens)

    def _with_services(self, costs: MeasuredRoundCosts, config: Config) -> MeasuredRoundCosts:
        """The costs completed by the target's steps, and by what a draft service is to it."""
        return replace(
            costs,
            verification=self.verification,
            round_trip_s=self.order.round_trip_s,
            shares_processors=shares_processors(config),
        )

    def _translated(self, drafts: Engine, config: Config) -> DraftEngine:
        """The drafter in the target's vocabulary: itself where it has the same."""
        if drafts.model.tokenizer_fingerprint == self.fingerprint:
            return drafts
        vocabularies = Vocabularies(Tokenizer.load(self.tokenizer_path), Tokenizer.load(drafts.model.tokenizer_path))
        wanted = config.draft.vocabulary
        return TranslatedDrafter(drafts, vocabularies, "auto" if wanted == "same" else wanted)

    def _target(self, config: Config, name: str, watch: Callable[[InTargetDrafter], DraftWatch] | None) -> EngineCore:
        self.report(f"{name}: the target loads", 0, 0)
        core = build_engine(config, "target", watch=watch)
        assert isinstance(core, EngineCore)
        self.fingerprint = core.model.tokenizer_fingerprint
        self.tokenizer_path = core.model.tokenizer_path
        template = self.order.config.orchestrator.chat_template
        if not self.questions:
            order = self.order
            if order.recent:
                self.questions = recent_questions(core, order, order.recent)
            elif order.service:
                self.questions = served_questions(core, order, order.service)
            else:
                self.questions = questions_of(core, order, template=template)
        return core

    def _answer(
        self, core: EngineCore, name: str, watch: DraftWatch | None, tree: TreeRequest | None = None
    ) -> Sequence[DraftedAnswer]:
        order = self.order
        num_tokens = sum(question.num_tokens(order.max_tokens) for question in self.questions)
        progress = self._progress(f"{name}: answers", num_tokens)
        answers = answer_all(core, self.questions, order.max_tokens, order.num_draft_tokens, watch, progress, tree=tree)
        if order.service:
            self.same_choices = _same_choices(answers)
            # That another target has chosen otherwise is nothing that a drafter could not see.
            answers = [replace(answer, shaped=()) for answer in answers]
        self.answers = self.answers or answers
        return answers

    def _time_steps(self, core: EngineCore, config: Config, name: str) -> None:
        """Anew beside each drafter: the machine may be busier than it was, and figures of one drafter are compared with
        each other."""
        self.report(f"{name}: timing", 0, 0)
        max_rows = config.target.engine.max_batch_tokens
        self.steps = calibrate(core, max_rows).table
        timer, context_tokens = ShapeTimes(core, time.perf_counter), context_tokens_of(core)
        self.verification = measure_verification(
            timer, loads_of(core), context_tokens, max_rows, core.limits.max_draft_tokens
        )

    def _progress(self, what: str, total: int) -> Callable[[int], None]:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.report(what, min(done, total), total)

        return advance


def examine(order: Order, report: Report = lambda *_: None) -> Examination:
    """Examine the drafters one after the other. Raises PilotfishError kinds of loading and ConfigError."""
    start_s = time.monotonic()
    examiner = _Examiner(order, report)
    results = [examiner.examine(drafter) for drafter in order.drafters]
    machine = this_machine()
    service = None
    if order.service:
        service = msgspec.structs.replace(order.service.measured, same_choices=examiner.same_choices)
    return Examination(
        target=order.config.target.model,
        machine=f"{machine.processor}, {machine.cores} cores",
        num_answers=len(examiner.answers),
        num_tokens=sum(len(answer.token_ids) for answer in examiner.answers),
        temperature=order.temperature,
        took_s=time.monotonic() - start_s,
        is_recent=order.recent is not None,
        service=service,
        plain_tokens_per_s={each.num_requests: each.by_draft_tokens[0] for each in results[0].speeds},
        drafters=results,
        advice=advise({result.name: result.speeds for result in results}),
    )


def _same_choices(answers: Sequence[DraftedAnswer]) -> float | None:
    """Share of the greedy answers' tokens that are the target's likeliest; None: nobody looked."""
    others = [is_other for answer in answers if answer.temperature == 0 for is_other in answer.shaped]
    return 1 - sum(others) / len(others) if others else None


def _result(
    drafter: NamedDrafter,
    config: Config,
    measured: _Measured,
    findings: Sequence[Finding],
    order: Order,
) -> DrafterResult:
    answers, num_draft_tokens = measured.answers, order.num_draft_tokens
    greedy = [answer for answer in answers if answer.temperature == 0]
    sampled = [answer for answer in answers if answer.temperature > 0]
    categories = dict.fromkeys(answer.category for answer in answers)
    overall = acceptance_of(answers, num_draft_tokens)
    weights = config.target.drafter.model if drafter.is_in_target else config.draft.model
    return DrafterResult(
        name=drafter.name,
        model=weights,
        overall=overall,
        greedy=None if order.recent else acceptance_of(greedy, num_draft_tokens),
        sampled=acceptance_of(sampled, num_draft_tokens) if sampled else None,
        by_category={
            category: acceptance_of([answer for answer in answers if answer.category == category], num_draft_tokens)
            for category in categories
        },
        speeds=predict(overall, measured.costs, answers),
        steps=measured.costs.steps,
        findings=findings,
        passes=measured.costs.passes,
        shares_processors=measured.costs.shares_processors and measured.costs.place is not DrafterPlace.TARGET,
    )

"""The service behind the public API: from a prompt to an answer, whatever protocol asks for it."""

from __future__ import annotations

import contextlib
import functools
from collections import abc
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

import msgspec

from orchestrator.answers.output import OutputChunk
from orchestrator.prompt_scoring import PromptScorer, PromptScores, Scores
from orchestrator.replicas.link import ReplicaLink
from orchestrator.replicas.pool import ReplicaPool
from orchestrator.request_telemetry.observer import ObservedRequest, RequestObserver
from orchestrator.request_telemetry.statistics import RequestStatistics
from orchestrator.requests.caller import Caller
from orchestrator.requests.fair_threads import FairThreads
from orchestrator.requests.grammar_check import GrammarCheck
from orchestrator.requests.kind import Kind, kind_of
from orchestrator.requests.model_limits import ServedModel
from orchestrator.requests.options import RequestDefaults
from orchestrator.requests.prompt import ChatPrompt, Prompt, Run, token_ids_of
from orchestrator.requests.request import GenerationOptions, bind_request, lossy_by_of
from orchestrator.requests.request_queue import RequestQueue, actual_cost, estimated_cost, grammar_cost
from orchestrator.session import Session
from orchestrator.session_factory import SessionFactory
from pilotfish.config import Config
from pilotfish.drafter_registry import LOOKUPS
from pilotfish.models.store.generation_config import sampling_defaults
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.answer import Summary
from pilotfish.security.allowance import Allowance
from pilotfish.structured.guard import GrammarGuard
from pilotfish.types import ModelInfo


@dataclass(frozen=True)
class Answer:
    """One request being served: its chunks, then its summary."""

    session: Session
    model: ModelInfo
    observed: ObservedRequest
    allowance: Allowance | None
    scorer: PromptScorer | None
    """Scores the prompt; None: it is not to be scored."""
    scores: PromptScores

    async def chunks(self) -> AsyncGenerator[OutputChunk, None]:
        """Close it with `aclosing`: that frees everything at every await."""
        request, prompt_logprobs = self.session.sequence.request, Scores()
        if self.scorer is not None:
            prompt_logprobs = await self.scores.logprobs(request, self.scorer, self.spend)
        async with self.session.running() as committed:
            while (chunk := await committed.take()) is not None:
                self.observed.add_chunk(len(chunk.token_ids))
                self.spend(len(chunk.token_ids))
                if prompt_logprobs:
                    chunk, prompt_logprobs = msgspec.structs.replace(chunk, prompt_logprobs=prompt_logprobs), ()
                yield chunk

    @property
    def cost(self) -> float:
        """What it has cost so far, in the fair queue's currency."""
        sequence = self.session.sequence
        num_readings = 1 + self.scores.is_scored_by(sequence.request)
        return actual_cost(num_readings * len(sequence.request.prompt_token_ids), sequence.num_output_tokens)

    def spend(self, num_tokens: int) -> None:
        """Count tokens against the caller's limits."""
        if self.allowance is not None:
            self.allowance.spend(num_tokens)

    @property
    def has_more_at_hand(self) -> bool:
        """Whether the next chunk comes without waiting."""
        return self.session.has_more_at_hand

    def summary(self) -> Summary:
        """The account of a finished answer."""
        sequence, target, observed = self.session.sequence, self.session.target, self.observed
        assert sequence.finish_reason is not None
        summary = Summary(
            request_id=sequence.request.request_id,
            finish_reason=sequence.finish_reason,
            stopped_by=sequence.stopped_by,
            num_prompt_tokens=len(sequence.request.prompt_token_ids),
            num_output_tokens=sequence.num_output_tokens,
            num_cached_tokens=target.num_cached_tokens if self.scorer is None else 0,  # scoring has computed it
            queue_time_s=observed.queue_time_ns / 1e9,
            time_to_first_token_s=(observed.first_token_ns - observed.arrival_ns) / 1e9,
            total_time_s=(observed.last_token_ns - observed.arrival_ns) / 1e9,
            speculation=self.session.speculation_stats,
            seed=sequence.request.sampling.seed,
            model_id=self.model.model_id,
            emulated=self.model.emulated,
            lossy=bool(lossy_by_of(sequence.request)),
        )
        observed.add_summary(summary)
        return summary


class InferenceService:
    """Admits requests and gives each its sequence, controller, drafter and target."""

    def __init__(self, config: Config, tokenizer: Tokenizer, targets: ReplicaPool, drafts: ReplicaPool) -> None:
        self.tokenizer = tokenizer
        self.targets = targets
        self.drafts = drafts
        self._config = config.orchestrator
        self._learning = config.draft.learning
        uses_models_own = config.orchestrator.generation_config == "auto"
        self.defaults = RequestDefaults(
            config.orchestrator.speculation, sampling_defaults(tokenizer.folder) if uses_models_own else {}
        )
        self._own_proposer = config.default_proposer
        self.observer = RequestObserver(config)
        self.request_queue = RequestQueue(config.orchestrator, lambda: targets.num_places)
        targets.on_room(self.request_queue.grant)
        self.threads = FairThreads(config.orchestrator)
        self.grammar_check = GrammarCheck(GrammarGuard(tokenizer.folder, tokenizer.vocab_size, tokenizer.eos_token_ids))
        self.sessions = SessionFactory(config, tokenizer, targets, drafts)
        targets.on_change(lambda: self.sessions.control.retain(targets.connected_ids))

    @property
    def statistics(self) -> RequestStatistics:
        """What became of the requests."""
        return self.observer.statistics

    @property
    def max_context_tokens(self) -> int:
        """Prompt plus output at most, by the model and by its replicas: emulated ones may have more."""
        connected = (link.model.max_context_tokens for link in self.targets.links if link.is_connected)
        return max((self.tokenizer.max_context_tokens, *connected))

    async def token_ids_of(self, prompt: Prompt, client_id: str) -> abc.Sequence[int]:
        """See `prompt.token_ids_of`."""
        return await token_ids_of(prompt, self.tokenizer, self.max_context_tokens, self.run_for(client_id))

    def run_for(self, client_id: str) -> Run:
        """Does a client's work on a thread when it is its turn."""
        return functools.partial(self.threads.run, client_id)

    @contextlib.asynccontextmanager
    async def serving(
        self, prompt: Prompt, options: GenerationOptions, caller: Caller, scores: PromptScores | None = None
    ) -> AsyncIterator[Answer]:
        """Wait for the caller's turn, then hold its place inside the block. scores: the request's,
        where it has several answers.

        Raises what `RequestQueue.place` does, InvalidRequestError for what the caller can mend, and UnavailableError
        without a target. The caller's own deadline is around it.
        """
        cost = estimated_cost(prompt, options.sampling.max_tokens)
        operation = "chat" if prompt.is_chat else "text_completion"
        with self.observer.request(caller, operation) as observed, caller.request():
            compile_cost = 0.0
            if options.sampling.grammar is not None:
                # Without a place, which others could use.
                took_s = await self.grammar_check.check(options.sampling.grammar, caller.client_id)
                compile_cost = grammar_cost(took_s)
            async with self.request_queue.place(caller, cost + compile_cost) as place:
                # All that a request has cost that fails before it is bound.
                place.cost = compile_cost
                answer = await self._answer(prompt, options, observed, caller, scores or PromptScores())
                try:
                    yield answer
                finally:
                    place.cost = answer.cost + compile_cost

    async def _answer(
        self,
        prompt: Prompt,
        options: GenerationOptions,
        observed: ObservedRequest,
        caller: Caller,
        scores: PromptScores,
    ) -> Answer:
        """Validate a request and make ready to serve it.

        Raises InvalidRequestError for what the caller can mend, UnavailableError without a target.
        """
        token_ids = await self.token_ids_of(prompt, caller.client_id)
        healthy = await self.ready_target()
        link = self.targets.expected(token_ids) or healthy
        has_grammar = options.sampling.grammar is not None
        has_tools = isinstance(prompt, ChatPrompt) and bool(prompt.tools)
        kind = kind_of(len(token_ids), has_grammar=has_grammar, has_tools=has_tools)
        request = bind_request(
            options,
            token_ids,
            self._served_model(link, kind),
            kind=kind,
            request_id=caller.identity.request_id,
            traceparent=observed.traceparent,
            client=caller.alias,
            learns=self._may_learn(options, caller),
        )
        scorer = self.sessions.scorer() if request.num_prompt_logprobs is not None else None
        session = self.sessions.session(request, link.model, observed.rounds, link.replica_id)
        model = self.named(link.model)
        observed.begin(session, request, model.model_id)
        answer = Answer(session, model, observed, caller.allowance, scorer, scores)
        answer.spend(len(request.prompt_token_ids))
        return answer

    def _may_learn(self, options: GenerationOptions, caller: Caller) -> bool:
        """Whether operator, key and request all let the drafter learn from it. A lossy text is not the target's own."""
        is_allowed = self._learning.enabled and options.speculation.learn and not lossy_by_of(options)
        is_allowed &= self._learning.salted or not options.cache_salt
        return is_allowed and (caller.allowance is None or caller.allowance.key.learn)

    async def ready_target(self) -> ReplicaLink:
        """A connected target replica, to learn the model from. Raises UnavailableError."""
        return await self.targets.connected(self._config.connect_timeout_s)

    def model_names(self, model: ModelInfo) -> tuple[str, ...]:
        """What requests may call it; answers use the first."""
        return self._config.served_model_name or (model.model_id,)

    def named(self, model: ModelInfo) -> ModelInfo:
        """The target's model, under the name that answers use."""
        return msgspec.structs.replace(model, model_id=self.model_names(model)[0])

    def _served_model(self, link: ReplicaLink, kind: Kind) -> ServedModel:
        return ServedModel(
            vocab_size=link.model.vocab_size,
            max_context_tokens=link.model.max_context_tokens,
            max_draft_tokens=self.targets.max_draft_tokens,
            default_draft_tokens=self._config.speculation.default_draft_tokens,
            measured_draft_tokens=self._config.speculation.max_draft_tokens,
            max_draft_depths=self._max_draft_depths(link.model),
            eos_token_ids=self.tokenizer.eos_token_ids,
            default_proposer=self.sessions.control.choose_proposer(link.replica_id, kind, self._proposers(link.model)),
            allow_lossy=self._config.speculation.allow_lossy,
            max_listed_tokens=self._config.max_listed_tokens,
        )

    def _max_draft_depths(self, target: ModelInfo) -> dict[str, int]:
        """The longest draft of each proposer whose drafts are bounded; the draft pool's are if every replica's are."""
        pool = [link.model.max_draft_depth for link in self.drafts.links if link.is_connected]
        depths = {target.proposer: target.max_draft_depth, "draft": max(pool) if pool and all(pool) else 0}
        return {proposer: depth for proposer, depth in depths.items() if depth}

    def _proposers(self, target: ModelInfo) -> list[str]:
        """Who may draft by default: the target, and a draft pool that does more than look up, whatever is configured.
        Without them what is configured."""
        proposers = [target.proposer] if target.proposer else []
        if any(link.model.proposer not in LOOKUPS for link in self.drafts.links if link.is_connected):
            proposers.append("draft")
        return proposers or [self._own_proposer]

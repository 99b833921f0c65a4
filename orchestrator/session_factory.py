"""Makes what serves one request, from the request and the configuration."""

from __future__ import annotations

from orchestrator.answers.output import AnswerText
from orchestrator.answers.sequence import Sequence
from orchestrator.awaited_drafter import AwaitedDrafter
from orchestrator.control.controller import Controller
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.control.replica_state import ControlState
from orchestrator.prompt_scoring import PromptScorer
from orchestrator.replicas.exchange import ReplicaExchange
from orchestrator.replicas.pool import ReplicaPool
from orchestrator.requests.reasoning import reasoning_marks
from orchestrator.requests.request import GenerationRequest
from orchestrator.rounds.commands import Command
from orchestrator.rounds.drafter_clients.branching import Branching
from orchestrator.rounds.drafter_clients.draft_deadline import draft_deadline_s
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient, InTargetClient
from orchestrator.rounds.drafter_clients.feature_feed import FeatureFeed
from orchestrator.rounds.drafter_clients.lookup_budget import LookupBudget
from orchestrator.rounds.drafter_clients.lookup_drafter import LookupDrafter
from orchestrator.rounds.drafter_clients.lookup_first import LookupFirst
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from orchestrator.rounds.machine import RoundMachine
from orchestrator.rounds.round_log import RoundLog
from orchestrator.rounds.target import Target
from orchestrator.session import Session
from orchestrator.step_rounds import DraftModels, StepRounds, step_rounds
from pilotfish.config import Config
from pilotfish.drafter_registry import IN_TARGET_DRAFTERS, LOOKUPS
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.speculation.lookup.index import lookup_of, needs_draft_probs
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.types import ModelInfo, TreeRequest

_MAX_UNASKED = 512
"""Messages of a replica that wait beside those of a run: answers of missed rounds, and predrafts of no use."""


class SessionFactory:
    """Makes one orchestrator's sessions. What its requests share is here."""

    def __init__(self, config: Config, tokenizer: Tokenizer, targets: ReplicaPool, drafts: ReplicaPool) -> None:
        speculation = config.orchestrator.speculation
        self.control = ControlState(speculation)
        self.lookup_budget = LookupBudget(speculation.lookup_tokens)
        self.predraft = PredraftPolicy(speculation.draft_ahead, speculation.draft_ahead_tokens)
        self._config = config.orchestrator
        self._tokenizer = tokenizer
        self._targets = targets
        self._drafts = drafts
        self._min_accepted_tokens = config.draft.lookup_min_accepted_tokens
        self._lookups = {name: lookup_of(name)(config.draft) for name in LOOKUPS}

    def session(self, request: GenerationRequest, model: ModelInfo, rounds: RoundLog, preferred: str = "") -> Session:
        """model: the targets'. preferred: id of the target to take among equals, for which the drafter was chosen."""
        config = self._config
        drafts_in_target = _drafts_in_target(request, model)
        tree = self._tree(self._targets.max_draft_tokens if drafts_in_target else 0)
        controller = (InTargetController if drafts_in_target else Controller)(request, self.control)
        sequence = Sequence(request, AnswerText(self._tokenizer, request))
        features, out, wait_s = FeatureFeed(model.feature_layers), list[Command](), config.connect_timeout_s
        # Of what a client leaves unread, half has been asked for and half committed.
        credit_tokens = max(1, config.slow_reader_tokens // 2)
        machine = RoundMachine(
            sequence,
            controller,
            self._drafter(request, model, out, features, controller),
            Target(self._targets, sequence, out, acquire_timeout_s=wait_s, features=features, preferred=preferred),
            out,
            credit_tokens=credit_tokens,
            tree=tree,
            log=rounds,
            steps=self._steps(request),
        )
        exchange = ReplicaExchange(self._targets, acquire_timeout_s=wait_s, max_unread=credit_tokens + _MAX_UNASKED)
        return Session(machine, exchange, max_unread_tokens=config.slow_reader_tokens - credit_tokens)

    def _steps(self, request: GenerationRequest) -> StepRounds | None:
        if request.speculation.level != "step":
            return None
        models = DraftModels(self._drafts)
        drafter = AwaitedDrafter(lambda out: RemoteDrafter(models, self._draft_deadline_s, out))
        marks = reasoning_marks(self._config.http.reasoning_parser, self._tokenizer.chat_template)
        return step_rounds(request, drafter, self.scorer(), self._tokenizer, marks, self._config.speculation.steps)

    def _drafter(
        self,
        request: GenerationRequest,
        model: ModelInfo,
        out: list[Command],
        features: FeatureFeed,
        controller: Controller,
    ) -> DrafterClient:
        proposer, first = request.speculation.proposer, self._config.speculation.lookup
        if _drafts_in_target(request, model):
            return InTargetClient(proposer, model.proposer)
        if proposer in self._lookups:
            return self._lookup(proposer, request, out)
        remote = RemoteDrafter(
            self._drafts,
            self._draft_deadline_s,
            out,
            needs_probs=needs_draft_probs(request.sampling),
            features=features,
            branching=self._branching(request, controller),
            predraft=self.predraft,
        )
        if first == "none":
            return remote
        return LookupFirst(
            first,
            self._lookup(first, request, out),
            remote,
            min_accepted_tokens=self._min_accepted_tokens,
            max_tokens=self._max_lookup_tokens(request),
        )

    def _lookup(self, name: str, request: GenerationRequest, out: list[Command]) -> LookupDrafter:
        lookup = SequenceLookup(self._lookups[name](request.cache_salt), len(request.prompt_token_ids))
        return LookupDrafter(lookup, self.lookup_budget, out, tree=self._tree(0))

    def _max_lookup_tokens(self, request: GenerationRequest) -> int:
        """Draft tokens of a lookup before the drafter, however few are asked of that; 0: no more."""
        if self._config.speculation.num_speculative_tokens_per_batch_size:
            return 0
        said = request.speculation.num_speculative_tokens
        return self._targets.max_draft_tokens if said is None else said

    def _draft_deadline_s(self, num_tokens: int) -> float:
        configured_ms = self._config.speculation.draft_deadline_ms
        if configured_ms:
            return configured_ms / 1000
        return draft_deadline_s(num_tokens, self.control.plain_token_s, self.predraft.ask_s)

    def scorer(self) -> PromptScorer:
        """Scores prompts on the target pool."""
        return PromptScorer(
            self._targets,
            self._tokenizer,
            max_draft_tokens=self._targets.max_draft_tokens,
            acquire_timeout_s=self._config.connect_timeout_s,
        )

    def _branching(self, request: GenerationRequest, controller: Controller) -> Branching:
        """How drafts of the pool may branch. What a grammar forces goes before a chain alone."""
        if self._config.speculation.tree_nodes == "auto" and request.sampling.grammar is None:
            return Branching(self._tree(self._targets.max_draft_tokens), controller.load.row_price)
        return Branching(self._tree(0))

    def _tree(self, num_nodes: int) -> TreeRequest | None:
        """How drafts may branch; None: they are chains. num_nodes: at most, where the operator gives no number."""
        speculation = self._config.speculation
        if isinstance(speculation.tree_nodes, int):
            num_nodes = speculation.tree_nodes
        num_nodes = min(num_nodes, self._targets.max_draft_tokens)
        return TreeRequest(num_nodes, speculation.tree_branching) if num_nodes else None


def _drafts_in_target(request: GenerationRequest, model: ModelInfo) -> bool:
    """A lookup is in the target where that has it, else in the orchestrator."""
    return request.speculation.proposer in (*IN_TARGET_DRAFTERS, model.proposer)

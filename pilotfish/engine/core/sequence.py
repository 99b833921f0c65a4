"""One sequence in an engine: its tokens, what is computed of them, and what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field

from pilotfish.engine.core.ahead_growth import AheadGrowth
from pilotfish.engine.core.block_pool import BlockHash, salted_root
from pilotfish.engine.core.drafts import NO_DRAFTS, DraftedChain, Drafts
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.features import FeatureRequest
from pilotfish.messages import AheadRequest, OpenSequence, PreparedDrafts, Verdict
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.token_lists import TokenLists
from pilotfish.speculation.stopping import cut
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import SamplingParams, Timings, TokenLogprobs, TreeRequest


@dataclass(slots=True)
class VerifyTask:
    """Verify these drafts; done in one step once the sequence has caught up."""

    drafts: Drafts
    arrival_ns: int
    start_ns: int = 0


@dataclass(slots=True)
class DecodeTask:
    """Decode until the sequence is goal_length tokens long."""

    goal_length: int
    arrival_ns: int
    num_draft_tokens: int
    """Drafts of the drafter in the target that a step may verify, at most; of a tree its depth."""
    tree: TreeRequest | None = None
    """Those drafts may branch."""
    drafts: Drafts = NO_DRAFTS
    """What the next step verifies."""
    start_ns: int = 0


@dataclass(slots=True)
class ProposeTask:
    """Draft num_draft_tokens tokens after the first base_length."""

    base_length: int
    num_draft_tokens: int
    arrival_ns: int
    start_ns: int = 0
    tree: TreeRequest | None = None
    growth: TreeProposal | None = None
    """Of a tree; None: a chain, whose drafts follow the sequence's tokens."""
    drafts: DraftedChain = field(default_factory=DraftedChain)
    """Of a chain, as far as it has come."""
    ahead: AheadRequest | None = None
    """What to draft ahead of a chain once it is proposed."""
    is_prepared: bool = False
    """The draft has been proposed before: only what is drafted ahead of it is wanted."""


@dataclass(slots=True)
class AheadTask:
    """Draft for what may be committed next. Nobody waits for it: everything else goes first."""

    growth: AheadGrowth
    arrival_ns: int = 0
    start_ns: int = 0


Task = VerifyTask | DecodeTask | ProposeTask | AheadTask


@dataclass(slots=True, eq=False)
class EngineSequence:
    """Mutable state; the scheduler and the core change it, nobody else.

    Invariant: the KV cache holds tokens[:num_computed_tokens] in block_ids.
    """

    command: InitVar[OpenSequence]
    open_order: int = 0
    """Earlier opened sequences may take blocks from later ones."""
    sequence_id: int = field(init=False)
    sampling: SamplingParams = field(init=False)
    tokens: list[int] = field(init=False)
    """The first num_committed_tokens are committed; on the draft side drafts may follow."""
    num_committed_tokens: int = field(init=False)
    num_prompt_tokens: int = field(init=False)
    token_lists: TokenLists = field(init=False)
    cache_salt: str = field(init=False)
    """What it shares, cached prefixes and outputs for lookups, is shared with sequences of the same salt."""
    history: TokenHistory | None = None
    grammar: GrammarMatcher | None = None
    """Where the output stands in the request's grammar."""
    is_grammar_pending: bool = False
    """Whether the grammar is being compiled: no token can be decided before."""
    num_computed_tokens: int = 0
    block_ids: list[int] = field(default_factory=list)
    num_registered_blocks: int = 0
    root_hash: BlockHash = field(init=False)
    last_hash: BlockHash = field(init=False)
    num_cached_tokens: int = 0
    task: Task | None = None
    prepared: PreparedDrafts | None = None
    """What to verify after the verification under way, by how that ends."""
    drafter_state: object = None
    """What the drafter in the target keeps about the computed tokens; lost with the blocks."""
    lookup: SequenceLookup | None = None
    """What a lookup in the target keeps of the tokens."""
    feature_request: FeatureRequest | None = None
    """What the next verdict that ends a task brings along."""
    is_opened: bool = False
    """Whether its Opened event was sent."""
    is_preempted: bool = False
    """Whether its blocks were taken once: from then on it computes only what a task asks for."""
    last_step: int = -1
    """Step that last served it: the longest unserved goes first."""
    last_served_ns: int = 0
    """When that ended."""
    compute_time_ns: int = 0

    def __post_init__(self, command: OpenSequence) -> None:
        self.sequence_id = command.sequence_id
        self.sampling = command.sampling
        self.token_lists = TokenLists(command.sampling)
        self.tokens = [*command.prompt_token_ids, *command.output_token_ids]
        self.num_committed_tokens = len(self.tokens)
        self.num_prompt_tokens = len(command.prompt_token_ids)
        self.cache_salt = command.cache_salt
        self.root_hash = self.last_hash = salted_root(command.cache_salt)
        if self.sampling.needs_history:
            self.history = TokenHistory(command.prompt_token_ids, command.output_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def drafts(self) -> Drafts:
        """What lies behind the tokens: drafts that the next step verifies, or nodes of a tree that is drafted."""
        if isinstance(self.task, VerifyTask | DecodeTask):
            return self.task.drafts
        growth = self._growth
        return NO_DRAFTS if growth is None else Drafts(growth.token_ids, (), growth.tree)

    @property
    def _growth(self) -> TreeProposal | AheadGrowth | None:
        return self.task.growth if isinstance(self.task, ProposeTask | AheadTask) else None

    @property
    def next_place(self) -> int:
        """Where the next row's keys and values go: behind the computed tokens, and the computed nodes of a tree."""
        growth = self._growth
        if growth is None or self.num_computed_tokens < len(self.tokens):
            return self.num_computed_tokens
        return self.num_computed_tokens + growth.num_computed

    @property
    def num_logit_rows(self) -> int:
        """Rows whose logits the task's next result takes: the last ones."""
        if self.task is None or self.is_grammar_pending:
            return 0
        growth = self._growth
        return 1 + len(self.drafts) if growth is None else growth.num_logit_rows

    @property
    def num_pending_rows(self) -> int:
        """Rows to compute until the task's next result; without a task, to be ready for one."""
        if self.task is None or self.is_grammar_pending:
            # The last token waits for the task that needs its logits. Preempted sequences wait as a whole:
            # idle ones would take the blocks back and forth.
            return 0 if self.is_preempted else max(0, len(self.tokens) - self.num_computed_tokens - 1)
        return len(self.tokens) + len(self.drafts) - self.next_place

    def mark_computed(self, end_place: int) -> None:
        """Rows up to end_place are in the KV cache now; verified drafts count once they are accepted."""
        self.num_computed_tokens = min(end_place, len(self.tokens))
        growth = self._growth
        if growth is not None:
            growth.num_computed = end_place - self.num_computed_tokens

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked of it that anybody waits for and that could be done now."""
        return self.task is None or self.is_grammar_pending or isinstance(self.task, AheadTask)

    def idle_ns(self, now_ns: int) -> int:
        """How long it was idle."""
        return now_ns - self.last_served_ns if self.is_idle else 0

    def forget_in_target_drafts(self) -> None:
        """Drop what was drafted without being asked for, in the target or ahead; drafts that were sent stay."""
        self.drafter_state = None
        if isinstance(self.task, DecodeTask):
            self.task.drafts = NO_DRAFTS
        elif isinstance(self.task, AheadTask):
            self.task = None

    def draft_ahead(self, drafts: DraftedChain, request: AheadRequest) -> None:
        """Go on behind the drafts, which the KV cache holds behind the tokens, the last of them left out."""
        growth = AheadGrowth(drafts, request)
        if growth.has_room:
            self.task = AheadTask(growth)

    def append(self, token_ids: Sequence[int], *, committed: bool) -> None:
        """Add tokens at the end; drafts (not committed) may be truncated again."""
        self.tokens.extend(token_ids)
        if committed:
            self.num_committed_tokens = len(self.tokens)
        self.remember(token_ids)

    def commit(
        self, token_ids: Sequence[int], path: Sequence[int], logprobs: Sequence[TokenLogprobs], max_context_tokens: int
    ) -> Verdict:
        """Append what was decided, cut at a stop; rolls rejected drafts back by lowering a number.

        path: the nodes of the accepted drafts, whose keys and values the caller moves into place before anybody may
        find the blocks. logprobs: of each token, or nothing.
        """
        task = self.task
        assert isinstance(task, VerifyTask | DecodeTask)
        drafts, base_length = task.drafts, len(self.tokens)
        remaining = min(self.sampling.max_tokens - self.num_output_tokens, max_context_tokens - base_length)
        committed, num_accepted, finish_reason = cut(
            token_ids, len(path), stop_token_ids=self.token_lists.stop_token_ids, remaining_tokens=remaining
        )
        self.append(committed, committed=True)
        self.num_computed_tokens = base_length + num_accepted
        timings = Timings(task.start_ns - task.arrival_ns, self.compute_time_ns)
        if isinstance(task, VerifyTask) or len(self.tokens) >= task.goal_length:
            self.task = None
        else:
            task.drafts = NO_DRAFTS
        self.compute_time_ns = 0
        return Verdict(
            sequence_id=self.sequence_id,
            base_length=base_length,
            num_draft_tokens=len(drafts),
            num_accepted_tokens=num_accepted,
            token_ids=committed,
            logprobs=tuple(logprobs[: len(committed)]),
            finish_reason=finish_reason,
            timings=timings,
            draft_depth=drafts.tree.depth if drafts.tree else 0,
            ended_in_leaf=drafts.tree is not None and not drafts.tree.children[path[-1] + 1 if path else 0],
        )

    def truncate(self, length: int) -> None:
        """Keep the first length tokens; blocks are the caller's to mind."""
        del self.tokens[length:]
        self.num_committed_tokens = min(self.num_committed_tokens, length)
        self.num_computed_tokens = min(self.num_computed_tokens, length)
        self.recall(length)

    def remember(self, token_ids: Sequence[int]) -> None:
        """Count tokens behind the others in what shapes the next ones: penalties and grammar."""
        if self.history is not None:
            self.history.append(token_ids)
        if self.grammar is not None:
            self.grammar.append(token_ids)

    def recall(self, length: int) -> None:
        """Count the first length tokens alone."""
        if self.history is not None:
            self.history.truncate(length)
        if self.grammar is not None:
            self.grammar.truncate(length)

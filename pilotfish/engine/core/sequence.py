"""One sequence in an engine: its tokens, what is computed of them, and what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field

from pilotfish.engine.core.cache.block_pool import BlockHash, salted_root
from pilotfish.engine.core.drafts import NO_DRAFTS, NOTHING_FORCED, DraftedChain, Drafts, ForcedSpan
from pilotfish.engine.core.predraft_growth import PredraftGrowth
from pilotfish.engine.core.task import DecodeTask, PredraftTask, ProposeTask, Status, Task, TimedTask
from pilotfish.engine.learning.recording import Recording
from pilotfish.features import FeatureRequest
from pilotfish.messages import Decode, Opened, OpenSequence, PredraftRequest, UseVocabulary, Verdict
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.speculation.results import Outcome
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.token_lists import TokenLists
from pilotfish.speculation.stopping import cut
from pilotfish.structured.matching import GrammarMatcher
from pilotfish.types import SamplingParams


@dataclass(slots=True, eq=False)
class EngineSequence:
    """Mutable state: its methods change it, the scheduler what it schedules by, and KVCache what lies in blocks.

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
    """The output's position in the request's grammar; None: the output is free."""
    awaits_grammar: bool = False
    takes_forced_drafts: bool = False
    """Whether what the grammar forces is drafted, as the last command has it."""
    forced_at: int = -1
    """Length of the tokens behind which `forced` lies."""
    forced: ForcedSpan = NOTHING_FORCED
    """What the grammar forces there."""
    num_computed_tokens: int = 0
    block_ids: list[int] = field(default_factory=list)
    num_registered_blocks: int = 0
    root_hash: BlockHash = field(init=False)
    last_hash: BlockHash = field(init=False)
    num_cached_tokens: int = 0
    task: Task | None = None
    drafter_state: object = None
    """What the drafter in the target keeps about the computed tokens; lost with the blocks."""
    lookup: SequenceLookup | None = None
    """What a lookup in the target keeps of the tokens."""
    vocabulary: UseVocabulary | None = None
    """What its drafts are chosen among, and how; None: as its sampling says."""
    feature_request: FeatureRequest | None = None
    """What the next verdict that ends a task brings along. It stands until the next command, for what follows."""
    recording: Recording | None = None
    """What is kept of it to learn from; None: nothing."""
    is_opened: bool = False
    """Whether its Opened event was sent."""
    is_preempted: bool = False
    """Whether its blocks were taken once: from then on it computes only what a task asks for."""
    last_step: int = -1
    """Step that last served it: the longest unserved goes first."""
    last_served_ns: int = 0
    """When that ended."""

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
    def status(self) -> Status:
        if self.awaits_grammar:
            return Status.AWAITING_GRAMMAR
        return Status.IDLE if self.task is None else self.task.status

    @property
    def run(self) -> DecodeTask | None:
        """The decoding that commands may extend or end: not a verification, which is over with its step."""
        task = self.task
        return task if isinstance(task, DecodeTask) and task.status is Status.DECODING else None

    @property
    def proposing(self) -> ProposeTask | None:
        """The proposal that a peer waits for."""
        return self.task if isinstance(self.task, ProposeTask) else None

    @property
    def drafts(self) -> Drafts:
        """What lies behind the tokens: drafts that the next step verifies, or nodes of a tree that is drafted."""
        return NO_DRAFTS if self.task is None else self.task.drafts

    @property
    def next_place(self) -> int:
        """Place of the next row's keys and values: behind the computed tokens, and the computed nodes of a tree."""
        growth = None if self.task is None else self.task.growth
        if growth is None or self.num_computed_tokens < len(self.tokens):
            return self.num_computed_tokens
        return self.num_computed_tokens + growth.num_computed

    @property
    def num_logit_rows(self) -> int:
        """Rows whose logits the task's next result takes: the last ones."""
        return 0 if self.task is None or self.awaits_grammar else self.task.num_logit_rows

    @property
    def num_pending_rows(self) -> int:
        """Rows to compute until the task's next result; without a task, to be ready for one."""
        if self.task is None or self.awaits_grammar:
            # The last token waits for the task that needs its logits. Preempted sequences wait as a whole:
            # idle ones would take the blocks back and forth.
            return 0 if self.is_preempted else max(0, len(self.tokens) - self.num_computed_tokens - 1)
        return len(self.tokens) + len(self.task.drafts) - self.next_place

    @property
    def asked_ns(self) -> int:
        """When its task came; 0: it has none that has a time."""
        return self.task.arrival_ns if isinstance(self.task, TimedTask) else 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked of it that anybody waits for and that could be done now."""
        return self.status in (Status.IDLE, Status.AWAITING_GRAMMAR, Status.PREDRAFTING)

    def idle_ns(self, now_ns: int) -> int:
        """How long it was idle."""
        return now_ns - self.last_served_ns if self.is_idle else 0

    def verify(self, drafts: Drafts, features: FeatureRequest | None, now_ns: int) -> None:
        """Decode one step with these drafts, whatever was asked before. features: what its verdict brings along."""
        goal = len(self.tokens) + 1
        self.task = DecodeTask(status=Status.VERIFYING, goal_length=goal, drafts=drafts, arrival_ns=now_ns)
        self.feature_request = features

    def decode(self, command: Decode, now_ns: int) -> None:
        """Decode as far as the command says: the run in progress goes on, or one begins."""
        self.takes_forced_drafts = command.takes_forced_drafts
        self.feature_request = command.features
        goal, run = command.base_length + command.num_tokens, self.run
        if run is None and goal <= len(self.tokens):
            return
        if run is None:
            run = self.task = DecodeTask(goal_length=goal, arrival_ns=now_ns)
        run.goal_length = max(run.goal_length, goal)
        run.num_draft_tokens = command.num_draft_tokens
        run.tree = command.tree

    def propose(self, task: ProposeTask) -> None:
        """Draft what a peer waits for."""
        self.task = task

    def draft_ahead(self, chain: DraftedChain, request: PredraftRequest, num_draft_tokens: int) -> None:
        """Go on behind the drafts, with drafts of num_draft_tokens; see PredraftGrowth."""
        growth = PredraftGrowth(chain, request, num_draft_tokens)
        self.task = PredraftTask(growth=growth) if growth.has_room else None

    def rest(self) -> None:
        """Nothing is asked of it any more."""
        self.task = None

    def follow(self, grammar: GrammarMatcher) -> None:
        """Wait no longer: here is the grammar, which stands where the output does."""
        self.grammar = grammar
        self.awaits_grammar = False

    def announce(self) -> list[Opened]:
        """What there is to say of it when it is served: something for the first time only."""
        if self.is_opened:
            return []
        self.is_opened = True
        return [Opened(self.sequence_id, self.num_cached_tokens)]

    def serve(self, start_ns: int, elapsed_ns: int, end_place: int) -> None:
        """A step has computed its rows up to end_place."""
        self.last_served_ns = start_ns + elapsed_ns
        if self.task is not None:
            self.task.serve(start_ns, elapsed_ns)
        self.mark_computed(end_place)

    def mark_computed(self, end_place: int) -> None:
        """Rows up to end_place are in the KV cache now; verified drafts count once they are accepted."""
        self.num_computed_tokens = min(end_place, len(self.tokens))
        growth = None if self.task is None else self.task.growth
        if growth is not None:
            growth.num_computed = end_place - self.num_computed_tokens

    def take_feature_request(self) -> FeatureRequest | None:
        """What is asked for and computed, which is answered with it; what follows is asked for from now on."""
        request, end = self.feature_request, self.num_computed_tokens
        if request is None or request.first_position >= end:
            return None
        self.feature_request = FeatureRequest(end, request.int8)
        return request

    def suggest(self, drafts: Drafts, drafter_version: int = 0) -> None:
        """The run, if there is one, verifies these in its next step: drafts of the drafter in the target."""
        if (run := self.run) is not None:
            run.drafts = drafts
            run.drafter_version = drafter_version

    def forget_in_target_drafts(self) -> None:
        """Drop what was drafted without being asked for, in the target or ahead; drafts that were sent stay."""
        self.drafter_state = None
        self.suggest(NO_DRAFTS)
        if self.status is Status.PREDRAFTING:
            self.rest()

    def append(self, token_ids: Sequence[int], *, committed: bool) -> None:
        """Add tokens at the end; drafts (not committed) may be truncated again."""
        self.tokens.extend(token_ids)
        if committed:
            self.num_committed_tokens = len(self.tokens)
        self.remember(token_ids)

    def commit(self, drafts: Drafts, outcome: Outcome, max_context_tokens: int) -> Verdict:
        """Append what was decided on the drafts, cut at a stop; rolls rejected ones back by lowering a number.

        The caller moves keys and values of the accepted drafts into place before anybody may find the blocks.
        """
        task = self.task
        assert isinstance(task, DecodeTask)
        base_length = len(self.tokens)
        remaining = min(self.sampling.max_tokens - self.num_output_tokens, max_context_tokens - base_length)
        path, stop_token_ids = outcome.path, self.token_lists.stop_token_ids
        committed, num_accepted, finish_reason = cut(
            outcome.token_ids, len(path), stop_token_ids=stop_token_ids, remaining_tokens=remaining
        )
        self.append(committed, committed=True)
        self.num_computed_tokens = base_length + num_accepted
        timings, is_verification = task.timings, task.status is Status.VERIFYING
        num_forced = drafts.forced[1] - drafts.forced[0]
        if len(self.tokens) >= task.goal_length:
            self.rest()
        task.drafts = NO_DRAFTS
        task.compute_time_ns = 0
        return Verdict(
            sequence_id=self.sequence_id,
            base_length=base_length,
            num_draft_tokens=len(drafts),
            num_accepted_tokens=num_accepted,
            token_ids=committed,
            logprobs=outcome.logprobs[: len(committed)],
            finish_reason=finish_reason,
            timings=timings,
            draft_depth=drafts.tree.depth if drafts.tree else 0,
            ended_in_leaf=drafts.tree is not None and not drafts.tree.children[path[-1] + 1 if path else 0],
            first_grammar_token=drafts.forced[0],
            num_grammar_tokens=num_forced,
            replaces_draft=is_verification and 0 < num_forced == len(drafts),
            drafter_version=0 if is_verification or num_forced == len(drafts) else task.drafter_version,
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

"""The whole loop over replicas in memory: what the client gets, whatever happens to the replicas."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from orchestrator.answers.output import OutputText
from orchestrator.answers.sequence import Sequence
from orchestrator.control.controller import Controller
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_state import ControlState
from orchestrator.drafting.drafter import DraftBlock
from orchestrator.drafting.hybrid_drafter import HybridDrafter
from orchestrator.drafting.in_target_drafter import InTargetDrafter
from orchestrator.drafting.lookup_drafter import LookupDrafter
from orchestrator.drafting.remote_drafter import RemoteDrafter
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.session import Session
from orchestrator.target import RemoteTarget
from pilotfish.config import DraftConfig, SpeculationConfig
from pilotfish.errors import InternalError, InvalidRequestError, ResourceExhaustedError, UnavailableError
from pilotfish.messages import Decode, OpenSequence, Proposal, Propose, SequenceError, Verdict, Verify
from pilotfish.speculation.lookup.lookups import LOOKUPS
from pilotfish.types import (
    IN_TARGET_DRAFTERS,
    FinishReason,
    LoadReport,
    SamplingParams,
    SequenceErrorCode,
    TokenOrigin,
    TreeRequest,
)

PROMPT = (1, 2, 3)
LOOKUP_CONFIG = DraftConfig(prompt_lookup_min=1, prompt_lookup_max=3)


class World:
    """A target pool, a draft pool, and sessions over them."""

    def __init__(self, pool_type, link_type, tokenizer) -> None:
        self.target_a, self.target_b = link_type("target-a"), link_type("target-b")
        self.draft_a = link_type("draft-a")
        self.targets = pool_type(self.target_a)
        self.drafts = pool_type(self.draft_a)
        self.tokenizer = tokenizer
        self.control = ControlState(SpeculationConfig(decode_run_tokens=8))
        self.deadline_s = 5.0

    def session(
        self, mode="on", k=4, max_tokens=40, stop=(), stop_token_ids=(), proposer="draft", run=1024, tree=None
    ) -> Session:
        request = GenerationRequest(
            prompt_token_ids=PROMPT,
            sampling=SamplingParams(temperature=0, max_tokens=max_tokens, stop_token_ids=stop_token_ids),
            speculation=SpeculationOptions(mode=mode, proposer=proposer),
            num_speculative_tokens=k,
            stop=stop,
        )
        if proposer in LOOKUPS:
            drafter = LookupDrafter(LOOKUPS[proposer](LOOKUP_CONFIG)(), num_prompt_tokens=len(PROMPT), tree=tree)
        elif proposer in IN_TARGET_DRAFTERS:
            drafter = InTargetDrafter(proposer, self.target_a.model.proposer)
        else:
            drafter = RemoteDrafter(self.drafts, lambda _: self.deadline_s, tree=tree)
        controller = InTargetController if proposer in IN_TARGET_DRAFTERS else Controller
        return Session(
            Sequence(request, OutputText(self.tokenizer, request)),
            controller(request, self.control),
            drafter,
            RemoteTarget(
                self.targets,
                acquire_timeout_s=1,
                max_run_tokens=run,
                tree=tree,
            ),
        )

    def assert_nothing_is_left(self) -> None:
        for link in (*self.targets.links, *self.drafts.links):
            assert not link.mailboxes
            assert not link.tokens


@pytest.fixture
def world(memory_pool, memory_link, toy_tokenizer) -> World:
    return World(memory_pool, memory_link, toy_tokenizer)


async def collect(session: Session) -> list:
    async with contextlib.aclosing(session.run()) as chunks:
        return [chunk async for chunk in chunks]


def tokens_of(chunks) -> tuple[int, ...]:
    return tuple(token_id for chunk in chunks for token_id in chunk.token_ids)


@pytest.mark.parametrize("proposer", ["draft", "ngram", "suffix", "eagle3"])
@pytest.mark.parametrize("mode", ["on", "auto", "off"])
async def test_every_mode_yields_the_targets_own_tokens(world, toy_continuation, mode, proposer) -> None:
    world.target_a.model = msgspec.structs.replace(world.target_a.model, proposer="eagle3")
    chunks = await collect(world.session(mode=mode, proposer=proposer))
    assert tokens_of(chunks) == toy_continuation(PROMPT, 40)
    assert chunks[-1].finish_reason is FinishReason.LENGTH
    world.assert_nothing_is_left()


async def test_speculation_saves_rounds_and_its_statistics_add_up(world) -> None:
    session = world.session(k=4, max_tokens=40)
    chunks = await collect(session)
    statistics = session.sequence.statistics
    assert len([command for command in world.target_a.commands if isinstance(command, Verify)]) == statistics.num_rounds
    assert statistics.num_accepted_tokens == statistics.num_draft_tokens  # the drafter is the target's twin
    assert session.sequence.num_plain_tokens + statistics.num_accepted_tokens + statistics.num_rounds == 40
    origins = [origin for chunk in chunks for origin in chunk.origins]
    assert origins.count(TokenOrigin.ACCEPTED) == statistics.num_accepted_tokens
    assert origins.count(TokenOrigin.PLAIN) == session.sequence.num_plain_tokens
    assert session.controller.limitation.text == ""


@pytest.mark.parametrize("proposer", ["draft", "ngram", "suffix"])
@pytest.mark.parametrize("mode", ["on", "auto"])
async def test_trees_yield_the_targets_own_tokens(world, toy_continuation, mode, proposer) -> None:
    chunks = await collect(world.session(mode=mode, proposer=proposer, tree=TreeRequest(8, 2)))
    assert tokens_of(chunks) == toy_continuation(PROMPT, 40)
    world.assert_nothing_is_left()


async def test_statistics_of_trees_are_by_depth(world) -> None:
    """The drafter names a wrong token beside every right one: half of the tokens, all of the depths."""
    session = world.session(k=3, max_tokens=41, tree=TreeRequest(6, 2))
    chunks = await collect(session)
    statistics = session.sequence.statistics
    assert [command.parents for command in world.target_a.commands if isinstance(command, Verify)] == [
        (-1, -1, 1, 1, 3, 3)
    ] * statistics.num_rounds
    assert statistics.num_draft_tokens == 2 * statistics.num_accepted_tokens == 6 * statistics.num_rounds
    assert statistics.acceptance_per_position == (1.0, 1.0, 1.0)
    assert statistics.mean_acceptance_length == 4
    origins = [origin for chunk in chunks for origin in chunk.origins]
    assert origins.count(TokenOrigin.BONUS) == statistics.num_rounds


async def test_a_target_that_drafts_for_itself_may_branch(world) -> None:
    world.target_a.model = msgspec.structs.replace(world.target_a.model, proposer="eagle3")
    await collect(world.session(proposer="eagle3", tree=TreeRequest(8, 2)))
    assert {command.tree for command in world.target_a.commands if isinstance(command, Decode)} == {TreeRequest(8, 2)}


async def test_a_target_that_drafts_for_itself_needs_one_command(world) -> None:
    world.target_a.model = msgspec.structs.replace(world.target_a.model, proposer="eagle3")
    session = world.session(k=4, max_tokens=41, proposer="eagle3")
    await collect(session)
    (_, run, *_) = world.target_a.commands
    assert run == Decode(sequence_id=1, base_length=len(PROMPT), num_tokens=41, num_draft_tokens=4)
    statistics = session.sequence.statistics
    assert (statistics.num_draft_tokens, statistics.num_accepted_tokens) == (32, 32)
    assert session.sequence.num_plain_tokens == 1
    assert session.controller.limitation.text == ""
    assert world.draft_a.commands == []
    world.assert_nothing_is_left()


async def test_a_target_without_the_drafter_decodes_plainly_and_says_why(world, toy_continuation) -> None:
    session = world.session(proposer="medusa", max_tokens=20)
    assert tokens_of(await collect(session)) == toy_continuation(PROMPT, 20)
    assert "no drafter medusa in the target: it has none" in session.controller.limitation.text
    assert session.sequence.num_plain_tokens == 20


async def test_drafted_runs_go_on_elsewhere_when_their_replica_is_lost(world, toy_continuation) -> None:
    for link in (world.target_a, world.target_b):
        link.model = msgspec.structs.replace(link.model, proposer="eagle3")
    world.targets.links.append(world.target_b)
    session = world.session(k=4, max_tokens=40, proposer="eagle3", run=8)
    tokens = []
    async with contextlib.aclosing(session.run()) as chunks:
        async for chunk in chunks:
            tokens.extend(chunk.token_ids)
            if len(tokens) > 10:
                world.target_a.lose()
    assert tuple(tokens) == toy_continuation(PROMPT, 40)
    assert {command.num_draft_tokens for command in world.target_b.commands if isinstance(command, Decode)} == {4}


async def test_the_first_token_waits_for_no_drafter(world) -> None:
    await collect(world.session())
    first_open, first_round = world.target_a.commands[:2]
    assert isinstance(first_open, OpenSequence)
    assert first_round == Decode(sequence_id=1, base_length=len(PROMPT), num_tokens=1)


async def test_mode_off_is_one_run_and_never_talks_to_a_drafter(world) -> None:
    session = world.session(mode="off", max_tokens=40)
    await collect(session)
    runs = [command for command in world.target_a.commands if isinstance(command, Decode)]
    assert [run.num_tokens for run in runs] == [40]
    assert world.draft_a.commands == []
    assert "off" in session.controller.limitation.text


async def test_runs_are_bounded_by_what_a_slow_reader_may_leave_waiting(world) -> None:
    await collect(world.session(mode="off", max_tokens=40, run=16))
    runs = [command.num_tokens for command in world.target_a.commands if isinstance(command, Decode)]
    assert runs == [16, 16, 8]


async def test_without_a_drafter_a_request_decodes_plainly_and_says_why(world, toy_continuation) -> None:
    world.drafts.links.clear()
    session = world.session()
    assert tokens_of(await collect(session)) == toy_continuation(PROMPT, 40)
    assert session.controller.limitation.text == "there is no replica"


async def test_a_silent_drafter_costs_its_rounds_only(world, toy_continuation) -> None:
    world.draft_a.on_event = lambda event: ()
    world.deadline_s = 0.001
    session = world.session(max_tokens=8)
    assert tokens_of(await collect(session)) == toy_continuation(PROMPT, 8)
    # The first token is decoded without, then ever longer runs follow: 1, 2 and the last 4.
    assert session.drafter.num_missed_deadlines == 3
    assert len(world.draft_a.failures) == 2  # all but the first after opening
    world.assert_nothing_is_left()


def _garbage(event):
    return (Proposal(event.sequence_id, event.base_length, (3, 10**6)),) if isinstance(event, Proposal) else (event,)


def _too_many(event):
    return (Proposal(event.sequence_id, event.base_length, (1,) * 9),) if isinstance(event, Proposal) else (event,)


def _stale(event):
    if isinstance(event, Proposal):
        return (Proposal(event.sequence_id, event.base_length - 1, (9, 9)), event)
    return (event,)


@pytest.mark.parametrize("fault", [_garbage, _too_many, _stale])
async def test_whatever_a_drafter_answers_the_text_is_the_targets(world, toy_continuation, fault) -> None:
    world.draft_a.on_event = fault
    session = world.session()
    assert tokens_of(await collect(session)) == toy_continuation(PROMPT, 40)
    world.assert_nothing_is_left()


async def test_stale_proposals_are_skipped_and_the_right_one_is_used(world) -> None:
    world.draft_a.on_event = _stale
    session = world.session()
    await collect(session)
    assert session.sequence.statistics.num_accepted_tokens == session.sequence.statistics.num_draft_tokens > 0


async def test_wrong_guesses_are_recovered_from(world, toy_continuation) -> None:
    world.draft_a.on_event = lambda event: (
        (Proposal(event.sequence_id, event.base_length, (*event.draft_token_ids[:1], 0, 0)),)
        if isinstance(event, Proposal)
        else (event,)
    )
    session = world.session()
    chunks = await collect(session)
    assert tokens_of(chunks) == toy_continuation(PROMPT, 40)
    assert TokenOrigin.RECOVERED in {origin for chunk in chunks for origin in chunk.origins}
    assert session.sequence.statistics.acceptance_per_position[0] == 1


@pytest.mark.parametrize("code", list(SequenceErrorCode))
async def test_no_error_of_a_drafter_fails_a_request(world, toy_continuation, sequence_error, code) -> None:
    world.draft_a.on_event = sequence_error(code)
    assert tokens_of(await collect(world.session())) == toy_continuation(PROMPT, 40)
    world.assert_nothing_is_left()


async def test_a_drafter_lost_in_mid_round_is_done_without(world, toy_continuation) -> None:
    def lose_it(event):
        if isinstance(event, Proposal) and event.base_length > 12:
            world.draft_a.lose()
        return (event,)

    world.draft_a.on_event = lose_it
    session = world.session()
    assert tokens_of(await collect(session)) == toy_continuation(PROMPT, 40)
    assert session.sequence.statistics.num_rounds > 0
    assert session.sequence.num_plain_tokens > 10
    world.assert_nothing_is_left()


@pytest.mark.parametrize("mode", ["on", "off"])
@pytest.mark.parametrize("last_length", [3, 4, 5, 20, 35])
async def test_a_lost_target_is_replaced_and_the_text_goes_on(world, toy_continuation, mode, last_length) -> None:
    world.targets.links.append(world.target_b)

    def lose_it(event):
        if isinstance(event, Verdict) and event.base_length >= last_length and world.target_a.is_connected:
            world.target_a.lose()
        return (event,)

    world.target_a.on_event = lose_it
    session = world.session(mode=mode)
    assert tokens_of(await collect(session)) == toy_continuation(PROMPT, 40)
    assert session.target.num_failovers == 1
    reopened = world.target_b.commands[0]
    assert isinstance(reopened, OpenSequence)
    assert (
        PROMPT + reopened.output_token_ids
        == (*PROMPT, *toy_continuation(PROMPT, 40))[: 3 + len(reopened.output_token_ids)]
    )
    world.assert_nothing_is_left()


@pytest.mark.parametrize("code", [code for code in SequenceErrorCode if code is not SequenceErrorCode.INVALID])
async def test_a_target_that_refuses_is_left_for_another(world, toy_continuation, sequence_error, code) -> None:
    world.targets.links.append(world.target_b)
    world.target_a.on_event = sequence_error(code)
    assert tokens_of(await collect(world.session())) == toy_continuation(PROMPT, 40)
    world.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (SequenceErrorCode.INVALID, InvalidRequestError),
        (SequenceErrorCode.RESOURCE_EXHAUSTED, ResourceExhaustedError),
        (SequenceErrorCode.INTERNAL, InternalError),
        (SequenceErrorCode.UNAVAILABLE, UnavailableError),
        (SequenceErrorCode.UNKNOWN_SEQUENCE, UnavailableError),
    ],
)
async def test_with_nowhere_else_to_go_the_targets_error_reaches_the_caller(world, sequence_error, code, error) -> None:
    world.target_a.on_event = sequence_error(code)
    with pytest.raises(error):
        await collect(world.session())
    world.assert_nothing_is_left()


async def test_a_refused_draft_is_dropped_and_its_round_decoded_plainly(world, toy_continuation) -> None:
    def refuse_drafts(event):
        if isinstance(event, Verdict) and event.num_draft_tokens:
            sequence_id = event.sequence_id
            del world.target_a.tokens[sequence_id][event.base_length :]
            return (SequenceError(sequence_id, SequenceErrorCode.INVALID, "no drafts, please"),)
        return (event,)

    world.target_a.on_event = refuse_drafts
    assert tokens_of(await collect(world.session(max_tokens=9))) == toy_continuation(PROMPT, 9)
    assert len([command for command in world.target_a.commands if isinstance(command, OpenSequence)]) == 1


async def test_a_draining_target_is_left_between_rounds(world, toy_continuation) -> None:
    world.targets.links.append(world.target_b)

    def drain(event):
        if isinstance(event, Verdict) and event.base_length > 10:
            world.target_a.is_draining = True
        return (event,)

    world.target_a.on_event = drain
    assert tokens_of(await collect(world.session())) == toy_continuation(PROMPT, 40)
    assert any(isinstance(command, Verify) for command in world.target_b.commands)
    world.assert_nothing_is_left()


async def test_a_target_that_talks_nonsense_is_an_error_not_a_wrong_text(world) -> None:
    world.target_a.on_event = lambda event: (
        (Verdict(event.sequence_id, event.base_length + 1, 0, 0, (1,)),) if isinstance(event, Verdict) else (event,)
    )
    with pytest.raises(InternalError, match="answered on 4 tokens; 3 are committed"):
        await collect(world.session())


async def test_a_stop_token_inside_a_block_cuts_it(world, toy_continuation) -> None:
    expected = toy_continuation(PROMPT, 40)
    stop_token_id = expected[7]
    end = expected.index(stop_token_id) + 1
    session = world.session(stop_token_ids=(stop_token_id,))
    chunks = await collect(session)
    assert tokens_of(chunks) == expected[:end]
    assert session.sequence.stopped_by == str(stop_token_id)
    assert "".join(chunk.text for chunk in chunks) == world.tokenizer.decode(expected[: end - 1])


@pytest.mark.parametrize("mode", ["on", "off"])
async def test_a_stop_string_inside_a_block_cuts_text_tokens_and_statistics(world, toy_continuation, mode) -> None:
    expected = toy_continuation(PROMPT, 40)
    stop = world.tokenizer.decode(expected[6:8])
    session = world.session(mode=mode, stop=(stop,))
    chunks = await collect(session)
    text = world.tokenizer.decode(expected)
    end = text.index(stop)
    assert "".join(chunk.text for chunk in chunks) == text[:end]
    assert tokens_of(chunks) == expected[: end + 2]
    assert session.sequence.stopped_by == stop
    assert session.sequence.finish_reason is FinishReason.STOP
    statistics = session.sequence.statistics
    origins = [origin for chunk in chunks for origin in chunk.origins]
    assert origins.count(TokenOrigin.ACCEPTED) == statistics.num_accepted_tokens
    world.assert_nothing_is_left()


@pytest.mark.parametrize("mode", ["on", "off"])
@pytest.mark.parametrize("num_chunks", [0, 1, 2, 5])
async def test_leaving_early_frees_everything(world, mode, num_chunks) -> None:
    world.target_a.decodes_step_by_step = True
    async with contextlib.aclosing(world.session(mode=mode).run()) as chunks:
        for _ in range(num_chunks):
            await anext(chunks)
    world.assert_nothing_is_left()


async def test_auto_decodes_plainly_where_an_operators_rule_says_so(world) -> None:
    world.control = ControlState(SpeculationConfig(num_speculative_tokens_per_batch_size=((1, 100, 0),)))
    session = world.session(mode="auto", max_tokens=100)
    await collect(session)
    assert session.sequence.num_plain_tokens == 100
    assert session.controller.limitation.reason is Reason.BATCH_SIZE
    runs = [command.num_tokens for command in world.target_a.commands if isinstance(command, Decode)]
    assert runs == [1, 16, 16, 16, 16, 16, 16, 3]


def _silent(event):
    return (Proposal(event.sequence_id, event.base_length, ()),) if isinstance(event, Proposal) else (event,)


async def test_a_drafter_without_ideas_is_asked_ever_more_rarely(world) -> None:
    world.draft_a.on_event = _silent
    session = world.session(mode="on", max_tokens=40)
    await collect(session)
    runs = [command.num_tokens for command in world.target_a.commands if isinstance(command, Decode)]
    # The first token, then as long as the drafter was silent before, up to decode_run_tokens.
    assert runs == [1, 1, 2, 4, 8, 8, 8, 8]
    assert session.sequence.statistics.num_rounds == 0


def told(session: Session) -> list:
    """What the controller is told, of every round."""
    results, decide = [], session.controller.decide

    def decide_spied(result):
        results.append(result)
        return decide(result)

    session.controller.decide = decide_spied
    session.controller.end = results.append
    return results


async def test_every_plain_token_is_told_to_the_controller_once(world) -> None:
    world.draft_a.on_event = _silent
    session = world.session(mode="on", max_tokens=43)
    results = told(session)
    await collect(session)
    assert [result.num_plain_tokens for result in results] == [0, 1, 1, 2, 4, 8, 8, 8, 8, 3]


async def test_the_last_round_is_told_to_the_controller_unless_what_follows_was_decided(world) -> None:
    session, ended = world.session(mode="off", max_tokens=20), []
    session.controller.end = ended.append
    await collect(session)
    assert [(last.num_output_tokens, last.num_plain_tokens) for last in ended] == [(20, 20)]


async def test_prefills_are_told_to_the_controller(world) -> None:
    """Half a second for each event of the target: a step of a run, or a verdict on a draft."""
    session, target = world.session(mode="on", max_tokens=30), world.target_a

    def arriving(event):
        target.load = LoadReport(prefill_time_ns=target.load.prefill_time_ns + 500_000_000)
        return (event,)

    target.on_event, results = arriving, told(session)
    await collect(session)
    prefills_s = [result.prefill_s for result in results if result.num_draft_tokens]
    assert prefills_s == [0.5] * session.sequence.statistics.num_rounds
    assert len(prefills_s) > 3


async def test_the_table_of_the_replica_is_told_to_the_controller(world) -> None:
    session = world.session(mode="on")
    results = told(session)
    await collect(session)
    assert not results[0].step_table.rows, "it has no replica yet"
    assert all(result.step_table is world.target_a.step_table for result in results[1:])
    assert {result.replica_id for result in results[1:]} == {"target-a"}


async def test_an_accepted_draft_brings_the_questions_back(world) -> None:

    def silent_at_times(event):
        is_silent = isinstance(event, Proposal) and (event.base_length < 15 or event.base_length == 24)
        return _silent(event) if is_silent else (event,)

    world.draft_a.on_event = silent_at_times
    await collect(world.session(mode="on", max_tokens=40))
    runs = [
        (command.base_length, command.num_tokens)
        for command in world.target_a.commands[1:-1]
        if isinstance(command, Decode)
    ]
    assert runs == [(3, 1), (4, 1), (5, 2), (7, 4), (11, 8), (24, 1)]
    drafted = [command.base_length for command in world.target_a.commands if isinstance(command, Verify)]
    assert drafted == [19, 25, 30, 35, 40]


class Watcher:
    """Has no idea when it is asked, and the truth, or worse, when it looks into a run."""

    num_missed_deadlines = 0
    unavailable_reason = ""
    is_saturated = False

    def __init__(self, tell) -> None:
        self.tell = tell
        self.num_glances = 0

    def prepare(self, sequence) -> None: ...

    async def propose(self, sequence, num_tokens) -> DraftBlock:
        return DraftBlock()

    def glance(self, sequence, num_tokens) -> DraftBlock:
        self.num_glances += 1
        return DraftBlock(self.tell(sequence.tokens_since(0), num_tokens))

    def close(self) -> None: ...


@pytest.fixture
def watched(world) -> Session:
    """A session whose drafter only glances; its target decodes while drafts travel."""
    world.target_a.decodes_step_by_step = world.target_b.decodes_step_by_step = True
    return world.session(max_tokens=60)


async def test_a_draft_cuts_into_a_run(world, watched, toy_continuation) -> None:
    watched.drafter = Watcher(toy_continuation)
    assert tokens_of(await collect(watched)) == toy_continuation(PROMPT, 60)
    statistics = watched.sequence.statistics
    assert statistics.num_rounds >= 5
    # What was decoded while the draft travelled is no part of it any more; all the rest is accepted.
    assert statistics.num_accepted_tokens == statistics.num_draft_tokens >= 2 * statistics.num_rounds
    assert watched.target.num_failovers == 0
    world.assert_nothing_is_left()


async def test_a_wrong_draft_does_not_disturb_a_run(world, watched, toy_continuation) -> None:
    answer = toy_continuation(PROMPT, 60)
    wrong = next(token_id for token_id in range(50) if token_id not in answer)
    watched.drafter = Watcher(lambda tokens, k: (wrong,) * k)
    assert tokens_of(await collect(watched)) == answer
    assert watched.sequence.statistics.num_accepted_tokens == 0
    runs = [command for command in world.target_a.commands if isinstance(command, Decode)]
    assert len(runs) <= 14
    assert watched.target.num_failovers == 0


async def test_while_a_draft_may_hold_no_other_is_looked_for(world, watched, toy_continuation) -> None:
    watched.drafter = Watcher(lambda tokens, k: toy_continuation(tokens, 3))
    # It never arrives, and says the truth three tokens long.
    world.target_a.decodes_step_by_step = False
    world.target_a.on_event = lambda event: () if isinstance(event, SequenceError) else (event,)
    assert tokens_of(await collect(watched)) == toy_continuation(PROMPT, 60)
    assert watched.drafter.num_glances <= 60 / 3


@pytest.mark.parametrize("code", [SequenceErrorCode.STALE, SequenceErrorCode.INVALID])
async def test_a_refused_draft_is_no_end_of_the_run(world, watched, toy_continuation, code) -> None:
    watched.drafter = Watcher(toy_continuation)

    def refuse(command):
        if isinstance(command, Verify):
            return [SequenceError(command.sequence_id, code, "too late", command.base_length)]
        return handle(command)

    handle, world.target_a._handle = world.target_a._handle, refuse
    assert tokens_of(await collect(watched)) == toy_continuation(PROMPT, 60)
    assert watched.target.num_failovers == 0
    assert watched.sequence.num_plain_tokens == 60


async def test_a_target_lost_with_a_draft_on_its_way_is_replaced(world, watched, toy_continuation) -> None:
    world.targets.links.append(world.target_b)
    watched.drafter = Watcher(toy_continuation)

    def lose(command):
        if isinstance(command, Verify):
            world.target_a.lose()
            return []
        return handle(command)

    handle, world.target_a._handle = world.target_a._handle, lose
    assert tokens_of(await collect(watched)) == toy_continuation(PROMPT, 60)
    assert watched.target.num_failovers == 1
    world.assert_nothing_is_left()


@pytest.mark.parametrize("proposer", ["ngram", "suffix"])
async def test_lookups_cut_into_runs(world, toy_continuation, proposer) -> None:
    world.target_a.decodes_step_by_step = True
    session = world.session(max_tokens=300, proposer=proposer)
    assert tokens_of(await collect(session)) == toy_continuation(PROMPT, 300)
    assert session.sequence.statistics.num_accepted_tokens > 100
    world.assert_nothing_is_left()


@pytest.mark.parametrize("has_pool", [True, False])
async def test_a_lookup_before_the_pool_spares_it_most_questions(world, toy_continuation, has_pool) -> None:
    if not has_pool:
        world.drafts.links.clear()
    session = world.session(max_tokens=300)
    lookup = LookupDrafter(LOOKUPS["suffix"](DraftConfig())(), num_prompt_tokens=len(PROMPT))
    session.drafter = HybridDrafter(lookup, session.drafter, min_accepted_tokens=1.0, max_lookup_tokens=8)
    assert tokens_of(await collect(session)) == toy_continuation(PROMPT, 300)
    questions = [command for command in world.draft_a.commands if isinstance(command, Propose)]
    assert bool(questions) == has_pool
    assert len(questions) < session.sequence.statistics.num_rounds
    told = list(PROMPT)
    for question in questions:
        told[question.base_length - len(question.new_token_ids) :] = question.new_token_ids
        assert tuple(told) == (*PROMPT, *toy_continuation(PROMPT, 300))[: question.base_length]
    world.assert_nothing_is_left()

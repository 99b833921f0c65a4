"""A head apart from its target bears with whatever comes or does not."""

import logging
from collections.abc import Callable

import msgspec
import pytest

from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.scheduler import LONG_IDLE_NS
from pilotfish.features import FeatureRequest
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Proposal, Propose, SequenceError
from pilotfish.types import SequenceErrorCode, TreeRequest
from tests.support.engine_events import TICK_NS
from tests.support.head_rounds import GREEDY, NUM_DRAFTS, PROMPTS, VOCAB, MakeHeadCore, Rounds, ask, drafts_of


@pytest.fixture
def running(target: EngineCore, make_head_core: MakeHeadCore) -> Rounds:
    """One sequence that has got drafts for three rounds."""
    rounds = Rounds(target, make_head_core(), GREEDY, None)
    rounds.start(PROMPTS[:1])
    for _ in range(3):
        rounds.play()
    assert all(answer.draft_token_ids for answer in rounds.proposals.values())
    return rounds


def test_without_features_there_are_no_drafts(make_head_core: MakeHeadCore) -> None:
    core = make_head_core()
    assert drafts_of(ask(core, OpenSequence(1, (3, 4, 5), GREEDY), Propose(1, 3, (), 4))) == ()


def test_features_in_the_middle_of_a_text_begin_a_part_of_it(running: Rounds, make_head_core: MakeHeadCore) -> None:
    text, features = running.texts[0], running.all_features()
    core = make_head_core()
    part = features.since(20)
    # The head's part of the text is a text: it drafts as if the rest had never been.
    whole = ask(core, OpenSequence(1, tuple(text), GREEDY), Propose(1, len(text), (), 4, part))
    moved = msgspec.structs.replace(part, first_position=0)
    cut = ask(core, OpenSequence(2, tuple(text[20:]), GREEDY), Propose(2, len(text) - 20, (), 4, moved))
    assert isinstance(whole[0], Proposal)
    assert isinstance(cut[0], Proposal)
    assert whole[0].draft_token_ids == cut[0].draft_token_ids != ()


def test_catching_up_with_a_run_is_as_good_as_a_fresh_start(running: Rounds, make_head_core: MakeHeadCore) -> None:
    for num_tokens in (5, 1, 4):
        length = len(running.texts[0])
        request = FeatureRequest(running.told[0] - 1)
        running.target.submit(Decode(0, length, num_tokens, features=request))
        running.hear_verdicts()
        caught_up = drafts_of(ask(running.head, running.propose(0)))
        text = tuple(running.texts[0])
        fresh = Propose(1, len(text), (), NUM_DRAFTS, running.all_features())
        assert caught_up == drafts_of(ask(make_head_core(), OpenSequence(1, text, GREEDY), fresh)) != ()


def test_a_gap_begins_afresh_and_repeated_features_change_nothing(
    running: Rounds, make_head_core: MakeHeadCore
) -> None:
    text, features = running.texts[0], running.all_features()
    early = msgspec.structs.replace(
        features, num_tokens=8, data=features.data[: 8 * len(features.data) // features.num_tokens]
    )
    core = make_head_core()
    opened = OpenSequence(1, tuple(text), GREEDY)
    assert not drafts_of(ask(core, opened, Propose(1, len(text), (), 4, early)))
    after_gap = drafts_of(ask(core, Propose(1, len(text), (), 4, features.since(20))))
    fresh = drafts_of(ask(make_head_core(), opened, Propose(1, len(text), (), 4, features.since(20))))
    assert after_gap == fresh != ()
    assert drafts_of(ask(core, Propose(1, len(text), (), 4))) == fresh
    assert drafts_of(ask(core, Propose(1, len(text), (), 4, features.since(20)))) == fresh


@pytest.mark.parametrize("spoil", [lambda data: data[:-2], lambda data: b"\xff" * len(data)], ids=["short", "nan"])
def test_garbage_in_place_of_features_costs_the_drafts_and_is_logged(
    running: Rounds, make_head_core: MakeHeadCore, caplog: pytest.LogCaptureFixture, spoil: Callable[[bytes], bytes]
) -> None:
    text, features = running.texts[0], running.all_features()
    garbage = msgspec.structs.replace(features, data=spoil(features.data))
    core = make_head_core()
    with caplog.at_level(logging.WARNING):
        events = ask(core, OpenSequence(1, tuple(text), GREEDY), Propose(1, len(text), (), 4, garbage))
    assert drafts_of(events) == ()
    assert "features of a sequence are dropped" in caplog.text
    assert drafts_of(ask(core, Propose(1, len(text), (), 4, features))) != ()


def test_replaced_tokens_make_the_replica_forget(running: Rounds) -> None:
    text = running.texts[0]
    (error,) = ask(running.head, Propose(0, len(text), ((text[-1] + 1) % VOCAB,) * 3, 4))
    assert isinstance(error, SequenceError)
    assert error.code is SequenceErrorCode.UNKNOWN_SEQUENCE
    assert running.head.load().num_kv_blocks_used == 0


def test_a_sequence_between_two_rounds_is_not_forgotten_for_a_later_one(
    running: Rounds, make_head_core: MakeHeadCore
) -> None:
    text, features = tuple(running.texts[0]), running.all_features()
    core = make_head_core(kv_cache_tokens=128)
    for number, has_room in ((1, True), (2, True), (3, False)):
        answers = ask(core, OpenSequence(number, text, GREEDY), Propose(number, len(text), (), 4, features))
        assert bool(drafts_of(answers)) == has_room
    for _ in range(3):
        assert [bool(drafts_of(ask(core, Propose(number, len(text), (), 4)))) for number in (1, 2, 3)] == [
            True,
            True,
            False,
        ]


def test_trees_take_as_many_blocks_as_they_grow_through(running: Rounds, make_head_core: MakeHeadCore) -> None:
    """Not those of all the nodes that the target may verify."""
    text, features, tree = tuple(running.texts[0]), running.all_features(), TreeRequest(32, 4, 0.01)
    core = make_head_core(kv_cache_tokens=128)
    for number in (1, 2):
        first = Propose(number, len(text), (), 4, features, tree)
        assert drafts_of(ask(core, OpenSequence(number, text, GREEDY), first))
    for _ in range(3):
        assert all(drafts_of(ask(core, Propose(number, len(text), (), 4, None, tree))) for number in (1, 2))


def test_nobody_is_forgotten_for_one_that_gets_no_drafts_even_so(running: Rounds, make_head_core: MakeHeadCore) -> None:
    text, features = tuple(running.texts[0]), running.all_features()
    core = make_head_core(kv_cache_tokens=80)
    assert drafts_of(ask(core, OpenSequence(1, text, GREEDY), Propose(1, len(text), (), 4, features)))
    assert ask(core, OpenSequence(2, text, GREEDY)) == []
    short = text[-20:]
    moved = msgspec.structs.replace(features.since(len(text) - 20), first_position=0)
    assert drafts_of(ask(core, OpenSequence(3, short, GREEDY), Propose(3, len(short), (), 4, moved)))
    assert not drafts_of(ask(core, Propose(2, len(text), (), 4, features)))
    assert drafts_of(ask(core, Propose(3, len(short), (), 4)))


def test_blocks_go_to_whoever_asks_and_who_was_idle_for_long_is_forgotten(
    running: Rounds, make_head_core: MakeHeadCore
) -> None:
    text, features = tuple(running.texts[0]), running.all_features()
    core = make_head_core(kv_cache_tokens=128)
    for number in (1, 2):
        assert drafts_of(ask(core, OpenSequence(number, text, GREEDY), Propose(number, len(text), (), 4, features)))
    for _ in range(LONG_IDLE_NS // TICK_NS):
        assert drafts_of(ask(core, Propose(1, len(text), (), 4)))
    assert drafts_of(ask(core, OpenSequence(3, text, GREEDY), Propose(3, len(text), (), 4, features)))
    assert drafts_of(ask(core, Propose(1, len(text), (), 4)))
    (error,) = ask(core, Propose(2, len(text), (), 4))
    assert isinstance(error, SequenceError)
    assert error.code is SequenceErrorCode.UNKNOWN_SEQUENCE


def test_more_at_once_than_there_is_room_for_get_nothing(running: Rounds, make_head_core: MakeHeadCore) -> None:
    text, features = tuple(running.texts[0]), running.all_features()
    core = make_head_core(kv_cache_tokens=128, max_batch_tokens=512)
    commands = [
        command
        for number in (1, 2, 3)
        for command in (OpenSequence(number, text, GREEDY), Propose(number, len(text), (), 4, features))
    ]
    answers = {event.sequence_id: event for event in ask(core, *commands) if isinstance(event, Proposal)}
    assert [bool(answers[number].draft_token_ids) for number in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize(("changes", "max_rows"), [({}, None), ({"max_batch_tokens": 512}, 48)])
def test_a_step_takes_as_many_rows_as_a_batch_may_have(
    running: Rounds, make_head_core: MakeHeadCore, changes: dict[str, int], max_rows: int | None
) -> None:
    text, features = tuple(running.texts[0]), running.all_features()
    core = make_head_core(**changes)  # 48 rows: one prompt at a time
    for number in (1, 2):
        core.submit(OpenSequence(number, text, GREEDY))
        core.submit(Propose(number, len(text), (), 4, features))
    first, second = core.step(max_rows), core.step(max_rows)
    assert [event.sequence_id for event in first if isinstance(event, Proposal)] == [1]
    assert [event.sequence_id for event in second if isinstance(event, Proposal)] == [2]
    assert core.load().num_steps == 2
    assert not core.has_work


def test_closing_frees_everything(running: Rounds) -> None:
    assert running.head.load().num_kv_blocks_used > 0
    running.head.submit(running.propose(0))
    assert ask(running.head, CloseSequence(0), CloseSequence(0), CloseSequence(77)) == []
    assert running.head.load().num_kv_blocks_used == 0
    assert running.head.load().num_sequences_running == 0


def test_a_failed_step_costs_its_sequences_not_the_replica(running: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(running.head._growth, "forward", fail)
        (error,) = ask(running.head, running.propose(0))
    assert isinstance(error, SequenceError)
    assert error.code is SequenceErrorCode.INTERNAL
    assert running.head.load().num_kv_blocks_used == 0

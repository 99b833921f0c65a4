"""The proposer as vLLM uses it, against a draft service on loopback: sound, absent, stopped, slow and mad."""

import threading

import pytest

from pilotfish.messages import CloseSequence, OpenSequence

PROMPT = (1, 11, 12, 13, 14, 15, 11, 12, 13, 14, 15)


@pytest.fixture
def engine(pool, make_proposer, make_engine):
    """An engine whose drafts come."""
    pool.start()
    engine = make_engine(make_proposer(pool.address))
    engine.steps_until(lambda: any(engine.drafts))
    return engine


def test_drafts_come_and_are_accepted(engine) -> None:
    before = engine.proposer.counters.acceptance.num_accepted_tokens
    for _ in range(4):
        (draft,) = engine.step()
        assert draft
        assert draft == engine.truth(0, len(draft))
    assert engine.proposer.counters.acceptance.num_accepted_tokens - before >= 12


def test_the_replica_is_told_the_prompt_once_and_then_what_is_new(pool, engine) -> None:
    opened = [command for command in pool.engine.commands if isinstance(command, OpenSequence)]
    assert opened[-1].prompt_token_ids[: len(PROMPT)] == PROMPT
    length = int(engine.num_tokens[0])
    pool.engine.batches.clear()
    engine.step()
    ((propose,),) = pool.frames_that_ask_on(int(engine.num_tokens[0]))
    assert len(propose.new_token_ids) == int(engine.num_tokens[0]) - length


def test_all_rows_of_a_step_travel_in_one_frame(pool, make_proposer, make_engine) -> None:
    pool.start()
    engine = make_engine(make_proposer(pool.address), num_rows=16)
    engine.steps_until(lambda: all(engine.drafts))
    pool.engine.batches.clear()
    engine.step()
    (frame,) = pool.frames_that_ask_on(int(engine.num_tokens[0]))
    assert len(frame) == 16


def test_rows_that_move_are_not_told_anew(pool, make_proposer, make_engine) -> None:
    pool.start()
    engine = make_engine(make_proposer(pool.address), num_rows=2)
    engine.steps_until(lambda: all(engine.drafts))
    pool.engine.batches.clear()
    engine.token_ids[[0, 1]] = engine.token_ids[[1, 0]]
    engine.num_tokens[[0, 1]] = engine.num_tokens[[1, 0]]
    engine.drafts.reverse()
    assert all(engine.step())
    assert not any(isinstance(command, OpenSequence) for command in pool.engine.commands)


def test_a_row_that_ended_is_closed_there(pool, make_proposer, make_engine) -> None:
    pool.start()
    engine = make_engine(make_proposer(pool.address), num_rows=2)
    engine.steps_until(lambda: all(engine.drafts))
    engine.drafts.pop()
    engine.steps_until(lambda: any(isinstance(command, CloseSequence) for command in pool.engine.commands))


def test_without_a_draft_service_vllm_starts_and_never_waits(make_proposer, make_engine) -> None:
    engine = make_engine(make_proposer("127.0.0.1:1", draft_deadline_ms=100_000))  # one wait, and the test times out
    for _ in range(50):
        assert engine.step() == [[]]
    assert engine.proposer.counters.num_proposer_faults == engine.proposer.counters.num_drafter_faults == 0


def test_a_draft_service_that_comes_later_is_found(pool, make_proposer, make_engine) -> None:
    pool.start()
    pool.stop()
    engine = make_engine(make_proposer(pool.address))
    engine.step()
    pool.start()
    engine.steps_until(lambda: any(engine.drafts))


def test_one_that_is_stopped_and_started_again_drafts_again(pool, engine) -> None:
    pool.stop()
    engine.steps_until(lambda: not any(engine.drafts))
    for _ in range(20):
        engine.step()
    pool.start()
    engine.steps_until(lambda: any(engine.drafts))


def test_one_that_says_nothing_is_soon_left_alone(pool, make_proposer, make_engine, caplog) -> None:
    pool.start("silent", after_rounds=30)
    engine = make_engine(make_proposer(pool.address, draft_deadline_ms=60))
    engine.steps_until(lambda: any(engine.drafts))
    engine.steps_until(lambda: "skipped for a while: a proposal missed its deadline" in caplog.text)
    num_missed = engine.proposer.counters.num_missed_deadlines
    assert num_missed >= 3
    for _ in range(40):
        assert engine.step() == [[]]
    assert engine.proposer.counters.num_missed_deadlines == num_missed


def test_one_that_was_left_alone_and_is_fast_again_drafts_again(pool, make_proposer, make_engine, caplog) -> None:
    pool.start("slow")
    engine = make_engine(make_proposer(pool.address, draft_deadline_ms=60))
    engine.steps_until(lambda: "skipped for a while" in caplog.text)
    pool.stop()
    pool.start()
    engine.steps_until(lambda: any(engine.drafts))


def test_a_batch_that_is_too_large_has_no_drafts_and_a_smaller_one_has_them_again(
    pool, make_proposer, make_engine
) -> None:
    pool.start()
    engine = make_engine(make_proposer(pool.address, disable_by_batch_size=2), num_rows=3)
    engine.drafts = [[], []]
    engine.steps_until(lambda: all(engine.drafts))
    assert engine.proposer.counters.num_sequences == 2
    engine.drafts = [[], [], []]
    for _ in range(20):
        assert engine.step() == [[], [], []]
    engine.drafts = [[], []]
    engine.steps_until(lambda: all(engine.drafts))
    assert engine.proposer.counters.num_sequences == 2  # the rows are told what they missed, and not opened again


def test_token_ids_that_no_vocabulary_has_never_reach_vllm(pool, make_proposer, make_engine) -> None:
    pool.start("garbage")
    engine = make_engine(make_proposer(pool.address))
    engine.steps_until(lambda: engine.proposer.counters.num_sequences > 3)
    for _ in range(5):
        assert engine.step() == [[]]


def test_another_tokenizer_is_refused(pool, make_proposer, make_engine, caplog) -> None:
    pool.fingerprint = "another"
    pool.start()
    engine = make_engine(make_proposer(pool.address))
    engine.steps_until(lambda: "same tokenizer" in caplog.text)
    assert engine.step() == [[]]


def test_a_head_on_hidden_states_is_refused_with_the_reason(pool, make_proposer, make_engine, caplog) -> None:
    pool.feature_layers = (1, 2)
    pool.start()
    engine = make_engine(make_proposer(pool.address))
    engine.steps_until(lambda: "hidden states" in caplog.text)
    assert engine.step() == [[]]


def test_without_the_tokens_secret_nobody_drafts(pool, make_proposer, make_engine, tmp_path, caplog) -> None:
    secret = tmp_path / "token"
    secret.write_text("0123456789" * 4)
    pool.start(security__internal__token_file=str(secret))
    stranger = make_engine(make_proposer(pool.address))
    stranger.steps_until(lambda: "cannot be used" in caplog.text)
    assert stranger.step() == [[]]
    friend = make_engine(make_proposer(pool.address, security={"token_file": str(secret)}))
    friend.steps_until(lambda: any(friend.drafts))


def test_a_fault_of_our_own_ends_no_engine_and_leaves_no_row_on_the_replica(pool, engine, caplog) -> None:
    pool.engine.batches.clear()
    assert engine.proposer.propose([[1]], [1], None) == [[]]
    assert engine.proposer.propose([[1]], [1], None) == [[]]
    assert caplog.text.count("Traceback") == 1
    engine.drafts = [[]]
    engine.steps_until(lambda: any(engine.drafts))
    kinds = [type(command) for command in pool.engine.commands]
    assert (kinds.count(CloseSequence), kinds.count(OpenSequence)) == (1, 1)


def test_switched_off_it_has_no_thread(make_proposer, make_engine) -> None:
    before = set(threading.enumerate())
    engine = make_engine(make_proposer("127.0.0.1:1", mode="off"))
    assert engine.step() == [[]]
    assert set(threading.enumerate()) <= before, "those of other tests may end"

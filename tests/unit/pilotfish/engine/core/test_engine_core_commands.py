"""What the engine core refuses, and what it says of itself."""

from typing import Any

import pytest

from pilotfish.messages import Decode, OpenSequence, Verdict, Verify
from pilotfish.types import Grammar, GrammarKind, SamplingParams, SequenceErrorCode
from tests.support.engine_events import GreedyText, MakeCore, errors_of, settle, text_of, verdicts_of

GREEDY = SamplingParams(temperature=0, max_tokens=100)
ANY_A = Grammar(GrammarKind.REGEX, "a*")
PROMPT = (1, 5, 9, 2, 33, 7)


BAD: list[tuple[Any, SequenceErrorCode, str]] = [
    (OpenSequence(2, (1,), SamplingParams(grammar=ANY_A)), SequenceErrorCode.INVALID, "knows no grammars"),
    (Verify(1, 5, (1,)), SequenceErrorCode.STALE, "stands on 5"),
    (Verify(9, 6, (1,)), SequenceErrorCode.UNKNOWN_SEQUENCE, "open it"),
    (Decode(9, 6, 1), SequenceErrorCode.UNKNOWN_SEQUENCE, "open it"),
    (Decode(1, 7, 1), SequenceErrorCode.STALE, "stands on 7"),
]


@pytest.mark.parametrize(("command", "code", "message"), BAD, ids=lambda value: type(value).__name__)
def test_bad_commands_are_answered_and_the_rest_goes_on(
    make_core: MakeCore, greedy_text: GreedyText, command: Any, code: SequenceErrorCode, message: str
) -> None:
    core = make_core()
    core.submit(OpenSequence(1, PROMPT, GREEDY))
    core.submit(command)
    (error,) = errors_of(settle(core))
    assert error.code is code
    assert message in error.message
    assert error.base_length == getattr(command, "base_length", 0)
    assert error.param == ("grammar" if "grammars" in message else "")
    core.submit(Decode(1, 6, 5))
    assert text_of(settle(core)) == greedy_text(PROMPT, 5)


def test_the_limit_of_the_cache_is_an_error_not_a_hang(make_core: MakeCore) -> None:
    core = make_core(kv_cache_tokens=32)
    core.submit(OpenSequence(1, (1,) * 40, GREEDY))
    core.submit(OpenSequence(2, (1,) * 20, GREEDY))
    (error,) = errors_of(settle(core))
    assert (error.sequence_id, error.code) == (1, SequenceErrorCode.RESOURCE_EXHAUSTED)
    core.submit(Decode(2, 20, 60))  # grows past the whole cache
    events = settle(core)
    assert len(text_of(events, 2)) == 13
    assert "kv_cache_tokens" in errors_of(events)[0].message
    assert core.kv_cache.pool.num_used == 0


def test_drafts_that_the_cache_cannot_hold_are_left_out(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core = make_core(kv_cache_tokens=32)
    prompt = tuple(range(30))
    right = greedy_text(prompt, 4)
    core.submit(OpenSequence(1, prompt, GREEDY))
    core.submit(Verify(1, 30, tuple(right)))
    (verdict,) = verdicts_of(settle(core))
    assert (verdict.num_draft_tokens, list(verdict.token_ids)) == (2, right[:3])


def test_logprobs_come_with_every_token(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core = make_core()
    core.submit(OpenSequence(1, PROMPT, SamplingParams(temperature=0, num_logprobs=3)))
    core.submit(Verify(1, 6, tuple(greedy_text(PROMPT, 2))))
    (verdict,) = verdicts_of(settle(core))
    assert len(verdict.logprobs) == 3
    for token_id, logprobs in zip(verdict.token_ids, verdict.logprobs, strict=True):
        assert logprobs.top_token_ids[0] == token_id
        assert logprobs.logprob == pytest.approx(logprobs.top_logprobs[0])
        assert len(logprobs.top_token_ids) == 3


def test_a_step_takes_no_more_rows_than_it_is_told(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core = make_core()
    right = greedy_text(PROMPT, 8)
    for sequence_id in (1, 2, 3, 4):
        core.submit(OpenSequence(sequence_id, PROMPT, GREEDY))
    settle(core)
    for sequence_id in (1, 2, 3, 4):
        core.submit(Verify(sequence_id, 6, tuple(right[:3])))
    steps = [core.step(8), core.step(8)]
    assert [[event.sequence_id for event in events if isinstance(event, Verdict)] for events in steps] == [
        [1, 2],
        [3, 4],
    ]
    assert text_of([*steps[0], *steps[1]], 4) == right[:4]


def test_load_reports_tell_decodes_from_prefills(make_core: MakeCore) -> None:
    core = make_core()

    def last_step() -> tuple[int, int, bool]:
        before_ns = core.load().prefill_time_ns
        core.step()
        load = core.load()
        return load.num_sequences_decoding, load.num_step_tokens, load.prefill_time_ns > before_ns

    for sequence_id in (1, 2):
        core.submit(OpenSequence(sequence_id, PROMPT, GREEDY))
        core.submit(Decode(sequence_id, len(PROMPT), 3))
    assert last_step() == (0, 2 * len(PROMPT), True)
    load = core.load()
    assert (load.num_sequences_running, load.num_kv_blocks_used, load.num_kv_blocks_total) == (2, 2, 64)
    assert last_step() == (2, 2, False)
    settle(core)
    core.submit(Verify(1, len(PROMPT) + 3, (4, 4, 4)))
    core.submit(Decode(2, len(PROMPT) + 3, 1))
    assert last_step() == (2, 5, False)

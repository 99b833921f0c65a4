"""What the engine core refuses, and what it says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish.messages import Decode, OpenSequence, Propose, Verdict, Verify
from pilotfish.types import Grammar, GrammarKind, SamplingParams, SequenceErrorCode, SparseDistribution, TreeRequest
from tests.support.engine_events import GreedyText, MakeCore, errors_of, settle, text_of, verdicts_of

GREEDY = SamplingParams(temperature=0, max_tokens=100)
ANY_A = Grammar(GrammarKind.REGEX, "a*")
PROMPT = (1, 5, 9, 2, 33, 7)


BAD: list[tuple[Any, SequenceErrorCode, str]] = [
    (OpenSequence(1, PROMPT, GREEDY), SequenceErrorCode.INVALID, "open already"),
    (OpenSequence(2, (), GREEDY), SequenceErrorCode.INVALID, "empty"),
    (OpenSequence(2, (64,), GREEDY), SequenceErrorCode.INVALID, "64 is not in the vocabulary"),
    (OpenSequence(2, (1,) * 128, GREEDY), SequenceErrorCode.INVALID, "context holds 128"),
    (OpenSequence(2, (1,), SamplingParams(logit_bias=((99, 1.0),))), SequenceErrorCode.INVALID, "99"),
    (OpenSequence(2, (1,), SamplingParams(grammar=ANY_A)), SequenceErrorCode.INVALID, "knows no grammars"),
    (Verify(1, 5, (1,)), SequenceErrorCode.STALE, "stands on 5"),
    (Verify(1, 6, (1,) * 9), SequenceErrorCode.INVALID, "at most 8"),
    (Verify(1, 6, (64,)), SequenceErrorCode.INVALID, "64"),
    (Verify(1, 6, (1, 2), parents=(-1,)), SequenceErrorCode.INVALID, "2 draft tokens with 1 parents"),
    (Verify(1, 6, (1, 2), parents=(-1, 1)), SequenceErrorCode.INVALID, "the parent of draft token 1 is 1"),
    (Verify(1, 6, (1, 2), parents=(-1, -2)), SequenceErrorCode.INVALID, "the parent of draft token 1 is -2"),
    (Verify(9, 6, (1,)), SequenceErrorCode.UNKNOWN_SEQUENCE, "open it"),
    (Decode(9, 6, 1), SequenceErrorCode.UNKNOWN_SEQUENCE, "open it"),
    (Decode(1, 7, 1), SequenceErrorCode.STALE, "stands on 7"),
    (
        OpenSequence(2, PROMPT, SamplingParams(max_tokens=2), (1, 2)),
        SequenceErrorCode.INVALID,
        "nothing is left to decode",
    ),
    *(
        (Verify(1, 6, (3,), (SparseDistribution(token_ids, probs),)), SequenceErrorCode.INVALID, "draft distribution")
        for token_ids, probs in (
            ((3, 4), (1.0,)),
            ((3, 3), (0.5, 0.5)),
            ((3, 4), (0.5, 0.25)),
            ((3, 4), (1.5, -0.5)),
            ((3, 4), (0.5, float("nan"))),
            ((3, 4), (0.5, float("inf"))),
            ((), ()),
        )
    ),
    (Propose(1, 6, (), 0), SequenceErrorCode.INVALID, "1 to 8"),
    (Propose(1, 7, (64,), 2), SequenceErrorCode.INVALID, "64"),
    *(
        (Propose(1, 6, (), 2, tree=tree), SequenceErrorCode.INVALID, "1 to 8 nodes")
        for tree in (TreeRequest(0, 2), TreeRequest(9, 2), TreeRequest(2, 0))
    ),
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


def test_limits_of_sequences_and_cache_are_errors_not_hangs(make_core: MakeCore) -> None:
    core = make_core(max_sequences=1, kv_cache_tokens=32)
    core.submit(OpenSequence(1, (1,) * 40, GREEDY))
    core.submit(OpenSequence(2, (1,) * 20, GREEDY))
    core.submit(OpenSequence(3, (1,), GREEDY))
    found = errors_of(settle(core))
    assert [(error.sequence_id, error.code) for error in found] == [
        (1, SequenceErrorCode.RESOURCE_EXHAUSTED),
        (3, SequenceErrorCode.RESOURCE_EXHAUSTED),
    ]
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

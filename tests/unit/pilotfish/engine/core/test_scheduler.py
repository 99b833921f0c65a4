"""Who gets rows in a step, and who gives up blocks."""

from typing import Any

import pytest

from pilotfish.engine.core.cache.block_pool import BlockPool
from pilotfish.engine.core.cache.kv_cache import KVCache
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.scheduler import LONG_IDLE_NS, PATIENCE_NS, Scheduler, num_prefill_rows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.messages import Decode, OpenSequence
from pilotfish.types import SamplingParams

BLOCK = 4


def make(num_blocks: int = 100, budget: int = 20, **options: Any) -> tuple[Scheduler, BlockPool]:
    pool = BlockPool(num_blocks, BLOCK, prefix_caching=False)
    return Scheduler(KVCache(pool), max_batch_tokens=budget, max_draft_tokens=4, **options), pool


def sequence(order: int, num_tokens: int, num_computed: int = 0) -> EngineSequence:
    result = EngineSequence(OpenSequence(order, (1,) * num_tokens, SamplingParams()), order)
    result.decode(Decode(order, num_tokens, 100), 0)
    result.num_computed_tokens = num_computed
    return result


def holding(scheduler: Scheduler, *sequences: EngineSequence) -> None:
    """Run steps until all but their last token is computed."""
    while any(item.num_computed_tokens < len(item.tokens) - 1 for item in sequences):
        for rows in scheduler.schedule(sequences):
            rows.sequence.num_computed_tokens += min(
                rows.num_rows, len(rows.sequence.tokens) - 1 - rows.sequence.num_computed_tokens
            )


def verifying(scheduler: Scheduler, count: int) -> list[EngineSequence]:
    """Sequences with four rows each, a token and three drafts."""
    sequences = [sequence(order, 8) for order in range(count)]
    for item in sequences:
        holding(scheduler, item)
        item.verify(Drafts((1, 2, 3)), None, 0)
    return sequences


def test_a_long_prompt_goes_in_chunks_of_the_budget() -> None:
    scheduler, _ = make(budget=20)
    prompt = sequence(1, 50)
    sizes = []
    while prompt.num_computed_tokens < 50:
        (rows,) = scheduler.schedule([prompt])
        sizes.append((rows.num_rows, rows.is_complete))
        prompt.num_computed_tokens += rows.num_rows
    assert sizes == [(20, False), (20, False), (10, True)]


def test_what_a_found_prefix_spares_is_spared_where_the_step_may_be_longer_than_was_wanted() -> None:
    cache = KVCache(BlockPool(100, BLOCK))
    scheduler = Scheduler(cache, max_batch_tokens=64, max_draft_tokens=32)
    first, again = sequence(1, 17), sequence(2, 17)
    holding(scheduler, first)
    cache.register_full_blocks(first, 16)
    again.verify(Drafts((1,) * 8), None, 0)
    (rows,) = scheduler.schedule([again], max_rows=5)
    assert (rows.first_position, rows.num_rows, rows.num_logit_rows) == (16, 9, 9)


def test_decodes_run_beside_a_prefill_and_neither_starves() -> None:
    scheduler, _ = make(budget=20)
    decodes = [sequence(order, 8) for order in range(30)]
    for item in decodes:
        holding(scheduler, item)
    prompt = sequence(99, 60)
    served = {id(item): 0 for item in decodes}
    for _ in range(4):
        scheduled = scheduler.schedule([*decodes, prompt])
        assert sum(rows.num_rows for rows in scheduled) <= 20
        prefill = [rows.num_rows for rows in scheduled if rows.sequence is prompt]
        assert prefill
        assert prefill[0] >= 5
        prompt.num_computed_tokens += prefill[0]
        for rows in scheduled:
            if rows.sequence is not prompt:
                served[id(rows.sequence)] += 1
    assert min(served.values()) >= 1, "the longest unserved goes first"


def step_ns(num_rows: float) -> float:
    """As on a CPU: rows cost something from the first on."""
    return 50.0 + num_rows


@pytest.mark.parametrize(
    ("num_decoding", "num_prompts", "num_prefill_rows"),
    [(0, 1, 300), (1, 1, 51), (10, 1, 60), (1, 2, 153), (1, 9, 299)],
)
def test_each_prompt_that_waits_makes_the_steps_of_others_at_most_twice_as_long(
    num_decoding: int, num_prompts: int, num_prefill_rows: int
) -> None:
    scheduler, _ = make(1000, budget=300, step_ns=step_ns)
    decoding = [sequence(order, 8) for order in range(num_decoding)]
    for item in decoding:
        holding(scheduler, item)
    prompts = [sequence(100 + order, 400) for order in range(num_prompts)]
    prefills = [rows for rows in scheduler.schedule([*decoding, *prompts]) if rows.sequence in prompts]
    assert sum(rows.num_rows for rows in prefills) == num_prefill_rows


def test_any_number_of_prompts_may_wait() -> None:
    assert num_prefill_rows(step_ns, 1, 5000, 512) == 512


def test_a_prompt_minds_a_sequence_that_is_between_two_rounds() -> None:
    now_ns = [0]
    scheduler, _ = make(200, budget=100, step_ns=step_ns, clock_ns=lambda: now_ns[0])
    away, prompt = sequence(1, 8), sequence(2, 400)
    holding(scheduler, away)
    away.rest()
    assert [rows.num_rows for rows in scheduler.schedule([away, prompt])] == [51]
    now_ns[0] = LONG_IDLE_NS
    assert [rows.num_rows for rows in scheduler.schedule([away, prompt])] == [100]


def test_short_prompts_are_prompts_too() -> None:
    scheduler, _ = make(1000, budget=300, step_ns=step_ns)
    decoding = sequence(1, 8)
    holding(scheduler, decoding)
    prompts = [sequence(10 + order, 20) for order in range(2)]
    scheduled = scheduler.schedule([decoding, *prompts])
    assert sum(rows.num_rows for rows in scheduled) == 41
    scheduler, _ = make(1000, budget=300, step_ns=lambda num_rows: 1.0 + 10 * num_rows)
    assert sum(rows.num_rows for rows in scheduler.schedule([decoding, *prompts])) == 1 + 16


def test_the_shortest_prompt_goes_first_unless_another_has_waited_for_long() -> None:
    now_ns = [1]
    scheduler, _ = make(200, budget=30, clock_ns=lambda: now_ns[0])
    long, short, idle = sequence(1, 90), sequence(2, 40), sequence(3, 30)
    idle.rest()
    assert [rows.sequence for rows in scheduler.schedule([long, idle, short])] == [short]
    now_ns[0] = PATIENCE_NS
    assert [rows.sequence for rows in scheduler.schedule([long, idle, short])] == [long]


def test_a_wide_verification_is_no_prompt() -> None:
    scheduler, _ = make(budget=100, step_ns=step_ns)
    decoding, wide = sequence(1, 8), sequence(2, 8)
    holding(scheduler, decoding, wide)
    wide.verify(Drafts((1,) * 60), None, 0)
    assert sum(rows.num_rows for rows in scheduler.schedule([decoding, wide])) == 62


def test_drafts_are_verified_together_or_wait() -> None:
    scheduler, _ = make(budget=6)
    verify = sequence(1, 8)
    verify.verify(Drafts((1, 2, 3, 4)), None, 0)
    (rows,) = scheduler.schedule([verify])  # 12 rows pending, budget 6: catch up first
    assert (rows.num_rows, rows.num_logit_rows) == (6, 0)
    verify.num_computed_tokens = 6
    (rows,) = scheduler.schedule([verify])
    assert (rows.num_rows, rows.num_logit_rows) == (6, 5)
    verify.num_computed_tokens = 5
    (rows,) = scheduler.schedule([verify])
    assert (rows.num_rows, rows.num_logit_rows) == (2, 0), "the last token waits for its drafts"


def test_drafts_that_nobody_asked_for_are_verified_as_far_as_they_fit() -> None:
    scheduler, _ = make(budget=6)
    run, other = sequence(1, 8), sequence(2, 8)
    holding(scheduler, run, other)
    run.suggest(Drafts((1, 2, 3, 4)))
    other.verify(Drafts((1, 2)), None, 0)
    other.last_step = -1
    (_, rows) = scheduler.schedule([run, other])
    assert (rows.sequence, rows.drafts, rows.num_rows, rows.num_logit_rows) == (run, Drafts((1, 2)), 3, 3)
    (rows,) = scheduler.schedule([run])
    assert rows.drafts == Drafts((1, 2, 3, 4)), "the plan for a step changes no sequence"


def test_rows_that_want_logits_are_bounded_and_nobody_starves() -> None:
    """Their logits are what a step takes most memory for."""
    pool = BlockPool(100, BLOCK, prefix_caching=False)
    scheduler = Scheduler(KVCache(pool), max_batch_tokens=100, max_draft_tokens=4, max_logit_rows=9)
    sequences = verifying(scheduler, 5)
    prompt = sequence(9, 50)
    first = scheduler.schedule([*sequences, prompt])
    assert [rows.num_logit_rows for rows in first] == [4, 4, 1]
    assert first[-1].sequence is prompt
    second = scheduler.schedule(sequences)
    assert [rows.sequence for rows in second] == sequences[2:4]
    assert scheduler.schedule(sequences)[0].sequence is sequences[4]
    one_at_least = Scheduler(KVCache(pool), max_batch_tokens=100, max_draft_tokens=4, max_logit_rows=1)
    assert len(one_at_least.schedule(sequences)) == 1


def test_a_limit_halves_verifications_and_leaves_prompts_alone() -> None:
    scheduler, _ = make(budget=40)
    verifies = verifying(scheduler, 4)
    prompt = sequence(99, 60)
    first = scheduler.schedule([*verifies, prompt], 8)
    assert [rows.sequence.sequence_id for rows in first if rows.sequence is not prompt] == [0, 1]
    assert sum(rows.num_rows for rows in first if rows.sequence is prompt) == 32, "what is left of the budget"
    second = scheduler.schedule([*verifies, prompt], 8)
    assert [rows.sequence.sequence_id for rows in second if rows.sequence is not prompt] == [2, 3], "those left out"
    assert len(scheduler.schedule(verifies, 1)) == 4, "a limit that nobody fits does not hold"
    assert len(scheduler.schedule(verifies)) == 4


def test_a_limit_does_not_touch_the_share_of_prompts() -> None:
    scheduler, _ = make(budget=40)
    verifies = verifying(scheduler, 10)
    prompt = sequence(99, 60)
    prefill = [rows.num_rows for rows in scheduler.schedule([*verifies, prompt], 1000) if rows.sequence is prompt]
    assert prefill == [12], "a quarter, and what 28 rows of verifications leave"


def test_a_limit_that_only_fits_who_has_no_blocks_does_not_hold() -> None:
    scheduler, pool = make(num_blocks=5)
    older, later = sequence(1, 8), sequence(2, 8)
    holding(scheduler, older, later)
    assert pool.num_used == 4
    older.verify(Drafts((1, 2, 3, 4)), None, 0)
    later.verify(Drafts((1,)), None, 0)
    later.last_step = -1  # the longest unserved: it takes no blocks from the older one
    assert [rows.sequence for rows in scheduler.schedule([older, later], 2)] == [older]
    assert later.is_preempted


def test_what_no_pool_can_hold_is_named_once_where_there_is_a_limit() -> None:
    scheduler, _ = make(num_blocks=2)
    too_long = sequence(1, 3)
    holding(scheduler, too_long)
    too_long.verify(Drafts((1, 2, 3, 4)), None, 0)
    assert scheduler.schedule([too_long], 5) == []
    assert scheduler.oversized == [too_long]


def test_blocks_are_taken_from_the_latest_opened() -> None:
    scheduler, pool = make(num_blocks=7, budget=100)
    early, middle, late = (sequence(order, 8) for order in (1, 2, 3))
    holding(scheduler, early, middle, late)
    early.num_computed_tokens = middle.num_computed_tokens = 7
    early.append([1], committed=True)  # needs a third block
    early.last_step = -1
    scheduled = scheduler.schedule([early, middle, late])
    assert early in [rows.sequence for rows in scheduled]
    assert late.is_preempted
    assert late.block_ids == []
    assert not middle.is_preempted
    assert scheduler.num_preemptions == 1
    assert pool.num_used == 5


def idle_and_worker(now_ns: list[int]) -> tuple[Scheduler, EngineSequence, EngineSequence]:
    """Two that fill the cache: the earlier is asked for nothing, the later needs a block more."""
    pool = BlockPool(5, BLOCK, prefix_caching=False)
    scheduler = Scheduler(KVCache(pool), max_batch_tokens=100, max_draft_tokens=4, clock_ns=lambda: now_ns[0])
    idle, worker = sequence(1, 8), sequence(2, 8)
    holding(scheduler, idle, worker)
    idle.rest()
    idle.last_served_ns = now_ns[0]
    worker.append([1], committed=True)
    return scheduler, idle, worker


def test_a_sequence_between_two_rounds_keeps_its_blocks() -> None:
    now_ns = [0]
    scheduler, idle, worker = idle_and_worker(now_ns)
    now_ns[0] += LONG_IDLE_NS - 1
    assert scheduler.schedule([idle, worker]) == []
    assert not idle.is_preempted
    assert scheduler.num_preemptions == 0


def test_holders_that_are_idle_for_long_give_way_before_anybody_who_waits() -> None:
    now_ns = [0]
    scheduler, idle, worker = idle_and_worker(now_ns)
    now_ns[0] += LONG_IDLE_NS
    assert [rows.sequence for rows in scheduler.schedule([idle, worker])] == [worker]
    assert idle.is_preempted
    assert idle.num_pending_rows == 0, "and does not come back before it is asked for something"


def test_what_is_computed_before_it_is_asked_for_takes_no_blocks() -> None:
    scheduler, _ = make(num_blocks=5)
    early, late = sequence(1, 16), sequence(2, 8)
    holding(scheduler, late)
    early.rest()
    late.rest()
    assert scheduler.schedule([early, late]) == []
    early.decode(Decode(1, 16, 4), 0)
    assert [rows.sequence for rows in scheduler.schedule([early, late])] == [early]
    assert late.is_preempted


def test_nobody_loses_blocks_to_one_that_cannot_run_even_so() -> None:
    scheduler, _ = make(num_blocks=7)
    first, middle, last = sequence(1, 16), sequence(2, 16), sequence(3, 8)
    holding(scheduler, first, last)
    assert [rows.sequence for rows in scheduler.schedule([middle, last])] == [last]
    assert not last.is_preempted


def test_what_the_whole_pool_cannot_hold_is_named() -> None:
    scheduler, pool = make(num_blocks=3, budget=100)
    giant = sequence(1, 9)
    assert scheduler.schedule([giant]) == []
    assert scheduler.oversized == [giant]
    assert pool.num_used == 0

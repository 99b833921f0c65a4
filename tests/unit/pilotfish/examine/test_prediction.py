from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from pilotfish.examine.acceptance import Acceptance, acceptance_of
from pilotfish.examine.costs import DrafterPlace, MeasuredRoundCosts
from pilotfish.examine.drafted_answer import DraftedAnswer, RehearsedDraft
from pilotfish.examine.drafted_tree import DraftedTree
from pilotfish.examine.prediction import Advice, Speed, advise, predict
from pilotfish.step_table import StepTable

MakeAnswer = Callable[..., DraftedAnswer]

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MS = 1_000_000
PLACES = (DrafterPlace.TARGET, DrafterPlace.DRAFT_SERVICE)
TOKENS = (1.0, 1.8, 2.4, 2.8, 3.0)
GOOD = Acceptance(1, 1, (0.8,), TOKENS, (0.0, 1.0, 2.0, 3.0, 4.0))


def costs(first_s: float = 0.001, place: DrafterPlace = DrafterPlace.TARGET) -> MeasuredRoundCosts:
    """Steps of up to 16 rows take 10 ms, larger ones as much as their rows."""
    steps = StepTable(ROWS, tuple(10 * MS * max(1, rows // 16) for rows in ROWS))
    loads = (1, 4, 16, 64)
    return MeasuredRoundCosts(steps, loads, (first_s,) * 4, (first_s / 2,) * 4, 256, 16, place)


@pytest.fixture
def answers(make_answer: MakeAnswer) -> list[DraftedAnswer]:
    """Nearly always right."""
    made = [make_answer(60, [(3 * at + seed) % 2 + 3 for at in range(60)], is_whole=True) for seed in range(4)]
    sure = (0.9, 0.8, 0.7, 0.6, 0.5)
    return [
        replace(each, drafts={at: replace(draft, confidences=sure) for at, draft in each.drafts.items()})
        for each in made
    ]


def test_a_round_is_a_step_and_the_drafters_time(answers: list[DraftedAnswer]) -> None:
    one, *_ = predict(acceptance_of(answers, 4), costs(), answers)
    assert one.by_draft_tokens[:2] == pytest.approx([100.0, 2.0 / 0.011], rel=0.02)
    assert one.tokens_per_s == pytest.approx(one.tokens_per_round / 0.012, rel=0.05)
    assert one.num_draft_tokens == 3
    assert one.speed_up == one.tokens_per_s / 100


def test_where_rows_cost_as_much_as_tokens_nothing_is_drafted() -> None:
    """Drafts that are right as often as not, of a drafter that is twice as sure."""
    token_ids = tuple(range(60))
    drafts = {place: RehearsedDraft((place if place % 2 else -1,), (0.9,)) for place in range(1, 60)}
    even = [DraftedAnswer("chat", 0.0, 3, token_ids, True, drafts=drafts)] * 4
    speeds = predict(acceptance_of(even, 1), costs(), even)
    assert [speed.num_draft_tokens for speed in speeds] == [1, 1, 0, 0]
    assert speeds[-1].speed_up == 1.0


def test_lengths_end_with_the_first_that_has_no_room(answers: list[DraftedAnswer]) -> None:
    *_, many = predict(acceptance_of(answers, 4), costs(), answers)
    assert len(many.by_draft_tokens) == 4  # a step has no room for 64 x 5 rows
    *_, most = predict(acceptance_of(answers, 4), replace(costs(), max_rows=32), answers)
    assert (most.num_draft_tokens, len(most.by_draft_tokens)) == (0, 1)


def test_lengths_of_which_no_answer_tells_are_left_out(make_answer: MakeAnswer) -> None:
    """They were cut off before."""
    short = [make_answer(4, [5, 5, 5])] * 3
    assert [len(speed.by_draft_tokens) for speed in predict(acceptance_of(short, 5), costs(), short)] == [3, 3, 3, 3]


def test_answers_of_one_token_leave_the_others_alone(answers: list[DraftedAnswer], make_answer: MakeAnswer) -> None:
    mixed = [*[make_answer(1, [], is_whole=True)] * 60, *answers]
    assert predict(acceptance_of(answers, 4), costs(), mixed) == predict(acceptance_of(answers, 4), costs(), answers)


def test_trees_are_taken_where_they_are_faster(answers: list[DraftedAnswer]) -> None:
    """The chain's second token is always wrong, and the tree has the right one."""
    drafts = {
        place: RehearsedDraft(
            (place, -1), (0.6, 0.5), DraftedTree((place, -1, place + 1), (-1, 0, 0), (-0.5, -0.9, -1.0))
        )
        for place in range(1, 60)
    }
    branching = [DraftedAnswer("chat", 0.0, 3, tuple(range(60)), True, drafts=drafts)] * 4
    speeds = predict(acceptance_of(branching, 2), costs(), branching)
    assert speeds[0].is_tree
    assert not speeds[-1].is_tree  # rows are dear among many requests
    assert speeds[0].by_depth_of_trees[2] > 1.2 * speeds[0].by_draft_tokens[2]
    assert not advise({"it": speeds}).takes_chains
    chains = [msgspec.structs.replace(speed, is_tree=False) for speed in speeds]
    assert advise({"it": chains}).takes_chains
    assert not advise({"it": predict(acceptance_of(answers, 4), costs(), answers)}).takes_chains


def test_a_draft_service_is_asked_over_a_network() -> None:
    near, far = (predict(GOOD, costs(first_s, DrafterPlace.DRAFT_SERVICE))[0] for first_s in (0.001, 0.002))
    assert far.by_draft_tokens[0] == near.by_draft_tokens[0] == 100.0
    assert all(slow < fast for slow, fast in zip(far.by_draft_tokens[1:], near.by_draft_tokens[1:], strict=True))
    assert near.by_depth_of_trees == ()
    # A step of 10 ms, passes of 1 and 0.5 ms, two round trips of 5 ms, and two messages of 0.1 ms.
    slow_link = replace(costs(0.001, DrafterPlace.DRAFT_SERVICE), round_trip_s=0.005)
    assert predict(GOOD, slow_link)[0].by_draft_tokens[2] == pytest.approx(TOKENS[2] / 0.0217, rel=1e-3)


def test_where_processors_are_shared_times_are_added() -> None:
    apart = replace(costs(0.001, DrafterPlace.DRAFT_SERVICE), round_trip_s=0.002)
    one, many = predict(GOOD, replace(apart, shares_processors=True))[:2]
    # Steps of 10 ms, passes of 1 and 0.5 ms, two round trips of 2 ms, and two messages of 0.1 ms for each request.
    assert one.by_draft_tokens[2] == pytest.approx(TOKENS[2] / 0.0157, rel=1e-3)
    assert many.by_draft_tokens[2] == pytest.approx(4 * TOKENS[2] / 0.0163, rel=1e-3)
    assert many.by_draft_tokens[0] == predict(GOOD, apart)[1].by_draft_tokens[0], "without drafts nothing is shared"


def test_a_head_is_foretold_in_both_places(answers: list[DraftedAnswer]) -> None:
    acceptance = acceptance_of(answers, 4)
    head, own, remote = (predict(acceptance, costs(0.001, place), answers) for place in (DrafterPlace.EITHER, *PLACES))
    assert [speed.by_remote_draft_tokens for speed in head] == [speed.by_draft_tokens for speed in remote]
    assert [msgspec.structs.replace(speed, by_remote_draft_tokens=()) for speed in head] == own
    assert advise({"it": head}) == advise({"it": own})


def test_advice(answers: list[DraftedAnswer]) -> None:
    acceptance = acceptance_of(answers, 4)
    fast, slow, useless = (predict(acceptance, costs(first_s), answers) for first_s in (0.001, 0.01, 1.0))
    advice = advise({"slow": slow, "fast": fast})
    assert advice.drafter == "fast"
    assert advice.num_draft_tokens == {each.num_requests: each.num_draft_tokens for each in fast}
    assert advise({"useless": useless}) == Advice("", {1: 0, 4: 0, 16: 0, 64: 0}, None)
    assert advice.off_from == next(each.num_requests for each in fast if not each.num_draft_tokens) == 16


def test_drafters_are_compared_at_loads_that_all_bear() -> None:
    """A draft model's engine may take fewer sequences than the target."""
    pool = [Speed(1, 3, 2.0, 200.0, 2.0, (100.0, 200.0))]
    own = [Speed(load, 1, 1.1, 110.0 * load, 1.1, (100.0 * load, 110.0 * load)) for load in (1, 4, 8)]
    assert advise({"own": own, "pool": pool}).drafter == "pool"
    assert advise({"own": own}).num_draft_tokens == {1: 1, 4: 1, 8: 1}

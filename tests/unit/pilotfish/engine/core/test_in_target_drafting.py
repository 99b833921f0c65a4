"""Drafters in the target: the text is that of plain decoding, and what they keep stays in step."""

import random
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import pytest
import torch

from pilotfish.engine.core.draft_costs import DraftCosts, Thresholds
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.draft_growth import DraftRows, grow_drafts, lay_out
from pilotfish.messages import Decode, Event, Opened, OpenSequence, Verdict
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.speculation.draft_vocabulary import DraftVocabulary
from pilotfish.types import AcceptanceMode, SamplingParams, TreeRequest
from tests.support.engine_events import GreedyText, MakeCore, MakeDrafter, decode, prompts, text_of

VOCAB, CONTEXT = 64, 128
GREEDY = SamplingParams(temperature=0, max_tokens=60)
COUPLED = SamplingParams(temperature=1.0, seed=7, max_tokens=60, frequency_penalty=0.3, repetition_penalty=1.2)
TREE = TreeRequest(max_nodes=12, branching=3)
REJECTION = SamplingParams(temperature=0.7, seed=3, max_tokens=60, acceptance=AcceptanceMode.REJECTION)


@pytest.fixture
def make_drafted(make_core: MakeCore) -> MakeCore:
    """A core with a drafter beside its decoder; None: without."""
    return partial(make_core, max_draft_tokens=12)


class Target:
    """Drafts with the target itself."""

    name = "target"
    num_rounds = 0
    max_draft_tokens: int | None = None

    def __init__(self, decoder: TransformersDecoder) -> None:
        self._decoder = decoder

    def allocate(self, _num_blocks: int) -> int:
        return 0

    @torch.inference_mode()
    def follow(self, _kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        wanted = list(wishes.values())
        texts = [wish.sequence for wish in wanted]
        last = [DraftRows(len(text.tokens) - 1, text.tokens[-1:], text.block_ids) for text in texts]
        vocabulary = DraftVocabulary(torch.arange(VOCAB), VOCAB)
        return grow_drafts(wanted, self._logits(last), self._logits, vocabulary, top_m=VOCAB) if wanted else []

    def _logits(self, parts: Sequence[DraftRows]) -> torch.Tensor:
        token_ids, positions, slices = lay_out(parts)
        return self._decoder.forward(StepInput(token_ids, positions, slices, range(len(token_ids)))).clone()


class Oracle:
    """Drafts what the target will say, with faults; checks what it is shown."""

    name = "oracle"
    num_rounds = 0
    max_draft_tokens: int | None = None

    def __init__(self, continue_text: GreedyText, seed: int) -> None:
        self._continue = continue_text
        self._random = random.Random(seed)
        self.seen: dict[int, int] = {}

    def allocate(self, num_blocks: int) -> int:
        return 100 * num_blocks

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        for rows in kept:
            assert rows.first_position + len(rows.step_rows) == rows.sequence.num_computed_tokens
            assert len(set(rows.step_rows)) == len(rows.step_rows) > 0
        drafts = []
        for wish in wishes.values():
            token_ids = self._continue(wish.sequence.tokens, wish.num_draft_tokens)
            if token_ids and self._random.random() < 0.5:
                token_ids[self._random.randrange(len(token_ids))] = self._random.randrange(VOCAB)
            drafts.append(Drafts(tuple(token_ids)))
        return drafts


@pytest.mark.parametrize(
    ("sampling", "kv_cache_tokens", "tree"),
    [(GREEDY, 1024, None), (COUPLED, 160, None), (GREEDY, 160, TREE), (COUPLED, 1024, TREE)],
    ids=["greedy-roomy-chain", "coupled-tight-chain", "greedy-tight-tree", "coupled-roomy-tree"],
)
def test_the_text_is_that_of_plain_decoding(
    make_drafted: MakeCore,
    make_drafter: MakeDrafter,
    sampling: SamplingParams,
    kv_cache_tokens: int,
    tree: TreeRequest | None,
) -> None:
    texts = prompts(1, 4)
    plain, _ = decode(make_drafted(None), texts, sampling, 24, 0)
    core = make_drafted(make_drafter, kv_cache_tokens=kv_cache_tokens)
    drafted, verdicts = decode(core, texts, sampling, 24, 5, tree)
    assert drafted == plain
    assert sum(verdict.num_draft_tokens for verdict in verdicts) > 20
    assert any(verdict.draft_depth for verdict in verdicts) == (tree is not None)
    assert (core.num_preemptions > 0) == (kv_cache_tokens == 160)
    again, _ = decode(core, texts, sampling, 24, 5, tree)  # on prefixes from the cache
    assert again == plain
    assert core.kv_cache.pool.num_used == 0


def test_a_drafter_that_is_the_target_is_always_right(make_drafted: MakeCore) -> None:
    core = make_drafted(Target)
    for sampling in (GREEDY, msgspec.structs.replace(COUPLED, frequency_penalty=1.0), REJECTION):
        _, verdicts = decode(core, prompts(2, 3), sampling, 24, 4)
        assert sum(verdict.num_draft_tokens for verdict in verdicts) > 30
        assert all(verdict.num_accepted_tokens == verdict.num_draft_tokens for verdict in verdicts)


def test_rejection_sampling_gets_its_distributions(make_drafted: MakeCore, make_drafter: MakeDrafter) -> None:
    outputs, verdicts = decode(make_drafted(make_drafter), prompts(3, 3), REJECTION, 30, 3)
    assert [len(output) for output in outputs] == [30] * 3
    assert sum(verdict.num_draft_tokens for verdict in verdicts) > 20


def test_drafts_that_pay_for_no_row_are_left_out_unless_they_were_drawn(
    make_drafted: MakeCore, make_drafter: MakeDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving out what was drawn, for what it is, would bend rejection's distribution."""
    monkeypatch.setattr(DraftCosts, "thresholds", lambda *_: Thresholds(row_prices=(0.0, *[1e9] * 60)))
    texts = prompts(1, 4)
    plain, _ = decode(make_drafted(None), texts, GREEDY, 24, 0)
    drafted, verdicts = decode(make_drafted(make_drafter), texts, GREEDY, 24, 4)
    assert drafted == plain
    assert not any(verdict.num_draft_tokens for verdict in verdicts)
    _, verdicts = decode(make_drafted(make_drafter), texts, REJECTION, 24, 4)
    assert sum(verdict.num_draft_tokens == 1 for verdict in verdicts) > 20
    # Where a step has no room for all, the last ones are shorter: they do not all stay or all go by what they are.
    core = make_drafted(make_drafter, max_batch_tokens=13)
    monkeypatch.setattr(DraftCosts, "thresholds", lambda *_: Thresholds(0.0, 0.0))
    _, verdicts = decode(core, texts, REJECTION, 24, 4)
    assert {verdict.num_draft_tokens for verdict in verdicts} >= {2, 4}


def test_a_first_token_leaves_before_anything_is_drafted_after_it(
    make_drafted: MakeCore, greedy_text: GreedyText
) -> None:
    happened: list[str | Event] = []

    class Noted(Oracle):
        def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
            happened.append("drafting")
            return super().follow(kept, wishes)

    core, prompt = make_drafted(lambda _: Noted(greedy_text, 0)), (5, 9, 2)
    core.send_first = happened.extend
    for number in (1, 2):
        core.submit(OpenSequence(number, prompt, msgspec.structs.replace(GREEDY, max_tokens=12 if number == 1 else 1)))
        core.submit(Decode(number, len(prompt), 12, 4))
    happened += core.step()
    assert [type(event) for event in happened[:3]] == [Opened, Opened, Verdict]
    drafting = happened.index("drafting")
    before = [event.token_ids for event in happened[:drafting] if isinstance(event, Verdict)]
    assert before == [tuple(greedy_text(list(prompt), 1))], "the other one ends with it"
    while core.has_work:
        happened += core.step()
    assert text_of([event for event in happened if isinstance(event, Verdict)], 1) == greedy_text(list(prompt), 12)
    assert sum(isinstance(event, Opened) for event in happened) == 2, "nothing leaves twice"


@pytest.mark.parametrize("num_draft_tokens", [1, 8])
def test_a_run_ends_where_it_was_asked_to(
    make_drafted: MakeCore, greedy_text: GreedyText, num_draft_tokens: int
) -> None:
    core = make_drafted(lambda _: Oracle(greedy_text, 0))
    prompt = [5, 9, 2]
    outputs, verdicts = decode(core, [prompt], GREEDY, 11, num_draft_tokens)
    assert outputs == [greedy_text(prompt, 11)]
    assert any(verdict.num_accepted_tokens for verdict in verdicts)
    outputs, _ = decode(core, [prompt], msgspec.structs.replace(GREEDY, max_tokens=7), 40, num_draft_tokens)
    assert outputs == [greedy_text(prompt, 7)]
    long = prompts(4, 1)[0] * 4
    long = long[: CONTEXT - 6]
    outputs, verdicts = decode(core, [long], msgspec.structs.replace(GREEDY, max_tokens=100), 100, num_draft_tokens)
    assert [len(output) for output in outputs] == [CONTEXT - len(long)]


@pytest.mark.parametrize("seed", range(2))
def test_what_the_drafter_is_shown_adds_up(make_drafted: MakeCore, greedy_text: GreedyText, seed: int) -> None:
    chance = random.Random(seed)
    core = make_drafted(
        lambda _: Oracle(greedy_text, seed),
        kv_cache_tokens=chance.choice((160, 1024)),
        max_batch_tokens=chance.choice((13, 20, 48)),
    )
    texts = prompts(seed, 4)
    outputs, verdicts = decode(core, texts, GREEDY, 20, 4)
    assert outputs == [greedy_text(text, 20) for text in texts]
    assert any(verdict.num_accepted_tokens > 1 for verdict in verdicts)
    assert any(verdict.num_accepted_tokens < verdict.num_draft_tokens for verdict in verdicts)


def test_nobody_drafts_unasked_or_without_a_drafter(make_drafted: MakeCore, make_drafter: MakeDrafter) -> None:
    for drafter, num_draft_tokens in ((make_drafter, 0), (None, 4)):
        _, verdicts = decode(make_drafted(drafter), [[5, 9, 2]], GREEDY, 20, num_draft_tokens)
        assert [verdict.num_draft_tokens for verdict in verdicts] == [0] * 20


def test_a_drafter_that_fails_costs_nobody_anything(
    make_drafted: MakeCore, greedy_text: GreedyText, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(Oracle):
        def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
            if kept[0].sequence.num_output_tokens > 3:
                raise RuntimeError("out of ideas")
            return super().follow(kept, wishes)

    core = make_drafted(lambda _: Faulty(greedy_text, 0))
    outputs, verdicts = decode(core, [[5, 9, 2]], GREEDY, 20, 2)
    assert outputs == [greedy_text([5, 9, 2], 20)]
    assert verdicts[0].num_draft_tokens == 0
    assert verdicts[1].num_draft_tokens == 2
    assert verdicts[-1].num_draft_tokens == 0
    assert "out of ideas" in caplog.text


def test_no_room_is_taken_for_tokens_that_the_drafter_cannot_draft(
    make_drafted: MakeCore, greedy_text: GreedyText
) -> None:
    wanted: list[int] = []

    class Short(Oracle):
        max_draft_tokens = 3

        def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
            wanted.extend(wish.num_draft_tokens for wish in wishes.values())
            return super().follow(kept, wishes)

    core = make_drafted(lambda _: Short(greedy_text, seed=1))
    decode(core, [list(range(20))], GREEDY, 24, 9)
    assert wanted
    assert max(wanted) == 3

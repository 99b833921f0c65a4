"""More sequences than the KV cache holds, each away between its rounds as with a remote drafter, in virtual time."""

import heapq
import random
from dataclasses import dataclass

import pytest

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost
from pilotfish.messages import Decode, OpenSequence, Verdict, Verify
from pilotfish.types import Limits, LoadReport, ModelInfo, SamplingParams

NUM_FIT = 8
NUM_PROMPT_TOKENS = 512
NUM_OUTPUT_TOKENS = 128
NUM_DRAFTS = 4
AWAY_NS = 15_000_000
STEP_S = 0.02
SAMPLING = SamplingParams(temperature=0, max_tokens=NUM_OUTPUT_TOKENS)
LANGUAGE_MODEL = HashLanguageModel()


@dataclass
class Play:
    """Every sequence asks for a verification, some time after the verdict on the one before."""

    prompts: list[list[int]]
    prefix_caching: bool
    chance: random.Random
    kv_cache_tokens: int = NUM_FIT * (NUM_PROMPT_TOKENS + NUM_OUTPUT_TOKENS + NUM_DRAFTS)
    now_ns: int = 0

    def __post_init__(self) -> None:
        self.core = EmulatedCore(
            ModelInfo(
                model_id="m",
                tokenizer_fingerprint="f",
                vocab_size=LANGUAGE_MODEL.vocab_size,
                max_context_tokens=1 << 16,
            ),
            Limits(max_draft_tokens=8, max_sequences=64),
            LANGUAGE_MODEL,
            step_cost=RooflineCost(weights_s=STEP_S, token_s=0.0),
            kv_cache_tokens=self.kv_cache_tokens,
            max_batch_tokens=512,
            prefix_caching=self.prefix_caching,
            clock_ns=lambda: self.now_ns,
        )
        self.texts = [list(prompt) for prompt in self.prompts]
        self.away: list[tuple[int, int]] = []
        """When which comes back."""

    def run(self) -> LoadReport:
        for number, prompt in enumerate(self.prompts):
            self.core.submit(OpenSequence(number, tuple(prompt), SAMPLING))
            self.core.submit(Decode(number, len(prompt), 1))
        num_running = len(self.prompts)
        while num_running:
            self._come_back()
            if not self.core.has_work:
                self.now_ns = self.away[0][0]
                continue
            events = self.core.step()
            self.now_ns += round(1e9 * self.core.step_s)
            for verdict in (event for event in events if isinstance(event, Verdict)):
                self.texts[verdict.sequence_id] += verdict.token_ids
                if verdict.finish_reason is None:
                    back_ns = self.now_ns + round(AWAY_NS * self.chance.uniform(0.5, 1.5))
                    heapq.heappush(self.away, (back_ns, verdict.sequence_id))
                else:
                    num_running -= 1
        return self.core.load()

    def _come_back(self) -> None:
        while self.away and self.away[0][0] <= self.now_ns:
            _, number = heapq.heappop(self.away)
            text = list(self.texts[number])
            drafts: list[int] = []
            for _ in range(NUM_DRAFTS):
                token_id = LANGUAGE_MODEL.next_token([*text, *drafts], SAMPLING)
                drafts.append(token_id if self.chance.random() < 0.7 else 3)
            self.core.submit(Verify(number, len(text), tuple(drafts)))

    def is_right(self) -> bool:
        return self.texts == [plain_text(prompt) for prompt in self.prompts]


def random_text(chance: random.Random, num_tokens: int) -> list[int]:
    return [chance.randrange(5, 90) for _ in range(num_tokens)]


def plain_text(prompt: list[int]) -> list[int]:
    text = list(prompt)
    for _ in range(NUM_OUTPUT_TOKENS):
        text.append(LANGUAGE_MODEL.next_token(text, SAMPLING))
    return text


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize(("num_sequences", "most_preemptions"), [(8, 0), (9, 2), (12, 6), (16, 6)])
def test_those_that_came_first_are_served_and_the_others_wait(
    num_sequences: int, most_preemptions: int, prefix_caching: bool
) -> None:
    chance = random.Random(1)
    prompts = [random_text(chance, NUM_PROMPT_TOKENS) for _ in range(num_sequences)]
    play = Play(prompts, prefix_caching, chance)
    load = play.run()
    assert load.num_preemptions <= most_preemptions
    rows_each = Play(prompts[:1], prefix_caching, chance).run().num_rows
    most_lost = most_preemptions * (NUM_PROMPT_TOKENS + NUM_OUTPUT_TOKENS)
    assert load.num_rows <= 1.05 * num_sequences * rows_each + most_lost
    assert play.is_right()


@pytest.mark.parametrize(("num_own_prompt_tokens", "num_later"), [(1500, 3), (1500, 6), (1024, 10)])
def test_nobody_gives_way_in_vain_where_all_but_one_share_their_prompt(
    num_own_prompt_tokens: int, num_later: int
) -> None:
    """What later ones share with the first stays taken, however many of them are preempted."""
    chance = random.Random(1)
    shared, other = random_text(chance, 1024), random_text(chance, num_own_prompt_tokens)
    first, *later = (shared + random_text(chance, 64) for _ in range(1 + num_later))
    play = Play([first, other, *later], True, chance, kv_cache_tokens=len(first) + len(other))
    assert play.run().num_preemptions <= 5 * num_later
    assert play.is_right()

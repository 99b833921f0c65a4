"""A head apart from its target, asked as an orchestrator asks it."""

from collections.abc import Callable, Sequence
from typing import Any

from pilotfish.config import EngineConfig
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.features import FeatureRequest, Features
from pilotfish.messages import (
    CloseSequence,
    Decode,
    Event,
    Opened,
    OpenSequence,
    PredraftRequest,
    Proposal,
    Propose,
    Verdict,
    Verify,
)
from pilotfish.types import ModelInfo, SamplingParams, TreeRequest
from tests.support.engine_events import settle

MakeHeadCore = Callable[..., HeadCore]
VOCAB, CONTEXT, LAYERS = 64, 128, (0, 1, 1)
NUM_DRAFTS = 4
PROMPTS = [tuple(range(3, 40)), (7, 7, 9, 1, 30), tuple(range(60, 10, -3))]
GREEDY = SamplingParams(temperature=0, max_tokens=40)


def info(**changes: Any) -> ModelInfo:
    return ModelInfo(
        model_id="tiny", tokenizer_fingerprint="none", vocab_size=VOCAB, max_context_tokens=CONTEXT, **changes
    )


def engine_config(*, kv_cache_tokens: int = 1024, max_batch_tokens: int = 48) -> EngineConfig:
    return EngineConfig(kv_cache_tokens=kv_cache_tokens, max_batch_tokens=max_batch_tokens, max_draft_tokens=8)


class Rounds:
    """What an orchestrator does for some sequences: every round asks the head of all, then the target."""

    def __init__(self, target: EngineCore, head: HeadCore, sampling: SamplingParams, tree: TreeRequest | None) -> None:
        self.target, self.head, self.sampling, self.tree = target, head, sampling, tree
        self.texts: dict[int, list[int]] = {}
        self.prompt_lengths: dict[int, int] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.told: dict[int, int] = {}
        self.proposals: dict[tuple[int, int], Proposal] = {}
        self.ahead: PredraftRequest | None = None

    def start(self, prompts: Sequence[Sequence[int]]) -> None:
        for sequence_id, prompt in enumerate(prompts):
            self.texts[sequence_id], self.told[sequence_id] = list(prompt), len(prompt)
            self.prompt_lengths[sequence_id] = len(prompt)
            for core in (self.target, self.head):
                core.submit(OpenSequence(sequence_id, tuple(prompt), self.sampling))
            self.target.submit(Decode(sequence_id, len(prompt), 1, features=FeatureRequest(0)))
        self.hear_verdicts()

    def hear_verdicts(self) -> None:
        for event in settle(self.target):
            if isinstance(event, Verdict):
                self.texts[event.sequence_id].extend(event.token_ids)
                self.verdicts[event.sequence_id] = event

    def propose(self, number: int, num_draft_tokens: int = NUM_DRAFTS) -> Propose:
        """With what the head has not been told yet."""
        text, told = self.texts[number], self.told[number]
        self.told[number] = len(text)
        features = self.verdicts[number].features
        return Propose(number, len(text), tuple(text[told:]), num_draft_tokens, features, self.tree, self.ahead)

    @property
    def running(self) -> list[int]:
        return [number for number, verdict in self.verdicts.items() if verdict.finish_reason is None]

    def play(self) -> None:
        running = self.running
        for number in running:
            room = self.sampling.max_tokens - (len(self.texts[number]) - self.prompt_lengths[number]) - 1
            if room > 0:
                self.head.submit(self.propose(number, min(NUM_DRAFTS, room)))
        answers = {event.sequence_id: event for event in settle(self.head) if isinstance(event, Proposal)}
        for number in running:
            length, answer = len(self.texts[number]), answers.get(number, Proposal(number, 0, ()))
            if number in answers:
                assert answer.base_length == length
                self.proposals[number, length] = answer
            features = FeatureRequest(length - 1)
            self.target.submit(
                Verify(number, length, answer.draft_token_ids, answer.draft_probs, answer.parents, features)
            )
        self.hear_verdicts()

    def all_features(self) -> Features:
        """Of all but the last token of the first text, from a sequence of its own."""
        text = tuple(self.texts[0])
        self.target.submit(OpenSequence(99, text[:-1], GREEDY))
        self.target.submit(Decode(99, len(text) - 1, 1, features=FeatureRequest(0)))
        (verdict,) = (event for event in settle(self.target) if isinstance(event, Verdict))
        self.target.submit(CloseSequence(99))
        assert verdict.features is not None
        return verdict.features


def ask(core: HeadCore, *commands: OpenSequence | Propose | CloseSequence | Verify) -> list[Event]:
    for command in commands:
        core.submit(command)
    return [event for event in settle(core) if not isinstance(event, Opened)]


def drafts_of(events: list[Event]) -> tuple[int, ...]:
    (answer,) = events
    assert isinstance(answer, Proposal)
    return answer.draft_token_ids

"""A drafter of another vocabulary behind the target's tokens: what it is told, and what becomes of its drafts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from draft_service.translation.engine import TranslatingEngine, translated
from draft_service.translation.families import Family
from draft_service.translation.vocabularies import Vocabularies
from pilotfish.config import Config, TargetConfig
from pilotfish.engine.process.process_engine import EventQueue
from pilotfish.errors import ModelError, UnavailableError
from pilotfish.messages import (
    CloseSequence,
    EngineCommand,
    Event,
    LearnVocabulary,
    Opened,
    OpenSequence,
    Predrafted,
    PredraftRequest,
    Proposal,
    Propose,
    SequenceError,
    UseVocabulary,
)
from pilotfish.types import (
    AcceptanceMode,
    Limits,
    LoadReport,
    ModelInfo,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    TreeRequest,
)
from tests.support.trained_tokenizers import Kind, trained_tokenizer

GREEDY = SamplingParams(temperature=0, max_tokens=100, stop_token_ids=(1,))
REJECTION = SamplingParams(acceptance=AcceptanceMode.REJECTION, max_tokens=100)
END = 1


class Scripted:
    """A drafter's engine whose answers a function gives; as strict about lengths as a real one."""

    def __init__(self, answer: Callable[[Propose], Event | None], max_context_tokens: int = 4096) -> None:
        self.model = ModelInfo(
            model_id="drafter",
            tokenizer_fingerprint="theirs",
            vocab_size=500,
            max_context_tokens=max_context_tokens,
            proposer="model",
        )
        self.limits = Limits(max_draft_tokens=8, max_sequences=4)
        self.load = LoadReport(num_sequences_running=3)
        self.opened: dict[int, OpenSequence] = {}
        self.tokens: dict[int, list[int]] = {}
        self.asked: list[Propose] = []
        self.used: dict[int, UseVocabulary] = {}
        """The last of each sequence."""
        self.vocabulary = LearnVocabulary(0, (), ())
        self.is_closed = False
        self.queue = EventQueue()
        self._answer = answer

    def send(self, commands: Sequence[EngineCommand]) -> None:
        self.queue.raise_if_failed()
        for command in commands:
            match command:
                case OpenSequence():
                    self.opened[command.sequence_id] = command
                    self.tokens[command.sequence_id] = [*command.prompt_token_ids, *command.output_token_ids]
                    self.queue.put([Opened(command.sequence_id, 0)])
                case Propose():
                    tokens = self.tokens[command.sequence_id]
                    start = command.base_length - len(command.new_token_ids)
                    assert len(self.opened[command.sequence_id].prompt_token_ids) <= start <= len(tokens)
                    tokens[start:] = command.new_token_ids
                    self.asked.append(command)
                    answer = self._answer(command)
                    self.queue.put([] if answer is None else [answer])
                case LearnVocabulary():
                    self.vocabulary = command
                case UseVocabulary():
                    self.used[command.sequence_id] = command
                case CloseSequence():
                    del self.tokens[command.sequence_id]

    async def receive(self) -> Sequence[Event]:
        return await self.queue.receive()

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture(scope="module")
def pair() -> Vocabularies:
    return Vocabularies(trained_tokenizer("byte_bpe"), trained_tokenizer("sentencepiece"))


def writes(vocabularies: Vocabularies, text: str) -> Callable[[Propose], Proposal]:
    """Drafts this text whatever comes before."""
    token_ids = tuple(vocabularies.drafter_continuation.encode(text)[0])

    def answer(command: Propose) -> Proposal:
        return Proposal(command.sequence_id, command.base_length, token_ids[: command.num_draft_tokens])

    return answer


class Front(TranslatingEngine):
    """Gives one event at a time."""

    _events: list[Event]

    async def answer(self) -> Event:
        """The next event that is not Opened."""
        self._events = getattr(self, "_events", [])
        async with asyncio.timeout(10):
            while not self._events:
                self._events += [event for event in await self.receive() if not isinstance(event, Opened)]
        return self._events.pop(0)


@asynccontextmanager
async def translating(engine: Scripted, pair: Vocabularies, vocabulary: str) -> AsyncIterator[Front]:
    front = Front(engine, [Family.translated(engine.model, pair), Family(engine.model)], vocabulary)
    yield front
    await front.close()
    assert engine.is_closed


def ids(pair: Vocabularies, text: str) -> tuple[int, ...]:
    return tuple(pair.target_continuation.encode(text)[0])


async def drafted(pair: Vocabularies, vocabulary: str, text: str, draft: str, k: int = 6) -> tuple[int, ...]:
    """The tokens that a drafter of `draft` proposes behind this answer."""
    engine = Scripted(writes(pair, draft))
    async with translating(engine, pair, vocabulary) as translated:
        prompt, output = ids(pair, "What does the fox say?"), ids(pair, text)
        translated.send([OpenSequence(1, prompt, GREEDY, output), Propose(1, len(prompt) + len(output), (), k)])
        proposal = await translated.answer()
        assert isinstance(proposal, Proposal)
        assert proposal.base_length == len(prompt) + len(output)
        return proposal.draft_token_ids


async def test_it_stands_for_a_drafter_of_the_targets_vocabulary(pair: Vocabularies) -> None:
    engine = Scripted(writes(pair, ""))
    async with translating(engine, pair, "text") as translated:
        model = translated.model
        assert (model.model_id, model.proposer) == ("drafter", "model")
        assert (model.tokenizer_fingerprint, model.vocab_size) == (pair.target.fingerprint, pair.target.vocab_size)
        assert model.max_context_tokens == pair.target.max_context_tokens
        assert translated.limits is engine.limits
        assert translated.load is engine.load


async def test_text_becomes_the_targets_tokens(pair: Vocabularies) -> None:
    assert await drafted(pair, "text", "The quick", " brown fox") == ids(pair, " brown fox")


async def test_a_draft_that_goes_on_in_a_word_is_tokenised_with_it(pair: Vocabularies) -> None:
    """The target's tokens of the answer stand: what cannot follow them is tokenised by itself."""
    assert pair.target.decode(await drafted(pair, "text", "The qui", "ck brown")) == "ck brown"


async def test_no_more_is_drafted_than_was_asked_for(pair: Vocabularies) -> None:
    assert await drafted(pair, "text", "The", " quick brown fox jumps over", k=2) == ids(pair, " quick brown fox")[:2]


async def test_the_rest_of_a_character_is_drafted(pair: Vocabularies) -> None:
    """The target has said the first bytes of an emoji: the drafter knows the text before it."""
    emoji = ids(pair, " x😀")
    assert len(emoji) > 3
    prompt = ids(pair, "a fox")
    engine = Scripted(writes(pair, "😀 and"))
    async with translating(engine, pair, "text") as translated:
        translated.send([OpenSequence(1, prompt, GREEDY, emoji[:-1])])
        translated.send([Propose(1, len(prompt) + len(emoji) - 1, (), 6)])
        proposal = await translated.answer()
        assert isinstance(proposal, Proposal)
        assert proposal.draft_token_ids[:1] == emoji[-1:]
        translated.send([Propose(1, len(prompt) + len(emoji), emoji[-1:], 6)])
        await translated.answer()
    told = pair.drafter.decode(engine.tokens[1])
    assert told.endswith("x😀")
    assert "\ufffd" not in told


async def test_a_draft_that_contradicts_a_begun_character_is_none(pair: Vocabularies) -> None:
    emoji = ids(pair, "😀")[:-1]
    engine = Scripted(writes(pair, " dog"))
    async with translating(engine, pair, "text") as translated:
        translated.send([OpenSequence(1, (5, 6), GREEDY, emoji), Propose(1, 2 + len(emoji), (), 4)])
        proposal = await translated.answer()
        assert isinstance(proposal, Proposal)
        assert proposal.draft_token_ids == ()


@pytest.mark.parametrize("vocabulary", ["text", "intersection"])
async def test_the_end_of_an_answer_is_the_targets(pair: Vocabularies, vocabulary: str) -> None:
    common = next(drafter_id for drafter_id, target_id in pair.target_ids.items() if target_id)
    engine = Scripted(lambda command: Proposal(command.sequence_id, command.base_length, (common, END, common)))
    async with translating(engine, pair, vocabulary) as translated:
        translated.send([OpenSequence(1, (5, 6), GREEDY), Propose(1, 2, (), 4)])
        proposal = await translated.answer()
        assert isinstance(proposal, Proposal)
        assert proposal.draft_token_ids[:2] == (pair.target_ids[common], END)


@pytest.mark.parametrize("kind", ["byte_bpe", "sentencepiece", "bytes"])
async def test_the_drafter_reads_its_own_tokens_of_the_text(kind: Kind) -> None:
    """However the target cuts the text, and whatever is taken back."""
    pair = Vocabularies(trained_tokenizer("sentencepiece"), trained_tokenizer(kind, 330))
    engine = Scripted(writes(pair, " fox"))
    async with translating(engine, pair, "text") as translated:
        prompt, base = ids(pair, "What does it say?"), 0
        translated.send([OpenSequence(1, prompt, GREEDY)])
        base = len(prompt)
        for new, rewound in ((" The qu", 0), ("ick bro", 1), ("wn 😀 fox\n", 0), (" x", 4), (" over the dog", 1)):
            token_ids = ids(pair, new)
            base += len(token_ids) - rewound
            translated.send([Propose(1, base, token_ids, 3)])
            proposal = await translated.answer()
            assert isinstance(proposal, Proposal)
            assert proposal.base_length == base
        (opening, told) = engine.opened[1], engine.tokens[1]
        written = told[len(opening.prompt_token_ids) :]
        assert opening.prompt_token_ids == tuple(pair.drafter.encode("What does it say?"))
        assert written == pair.drafter_continuation.encode(pair.drafter.decode(written, skip_special=False))[0]
        # A repeated request says nothing new.
        translated.send([Propose(1, base, (), 3)])
        await translated.answer()
        assert engine.asked[-1].new_token_ids == ()


async def test_common_tokens_are_drawn_with_their_probabilities(pair: Vocabularies) -> None:
    one, other = list(pair.target_ids)[:2]
    probs = SparseDistribution((other, one), (0.75, 0.25))
    engine = Scripted(lambda command: Proposal(command.sequence_id, command.base_length, (one,), (probs,)))
    async with translating(engine, pair, "intersection") as translated:
        sampling = msgspec.structs.replace(REJECTION, temperature=0.7, logit_bias=((3, 2.0),), min_tokens=4)
        translated.send([OpenSequence(1, (5, 6), sampling), Propose(1, 2, (), 1)])
        proposal = await translated.answer()
        assert isinstance(proposal, Proposal)
        mapped = pair.target_ids
        assert proposal.draft_token_ids == (mapped[one],)
        assert proposal.draft_probs == (SparseDistribution((mapped[other], mapped[one]), (0.75, 0.25)),)
        learned, used = engine.vocabulary, engine.used[1]
        assert used.vocabulary == learned.vocabulary != 0
        assert dict(zip(learned.drafter_ids, learned.target_ids, strict=True)) == {**mapped, END: END}
        asked = used.sampling
        assert (asked.temperature, asked.logit_bias, asked.min_tokens) == (0.7, (), 0)
        assert asked.acceptance is AcceptanceMode.REJECTION


async def test_common_tokens_are_chosen_at_the_targets_places(pair: Vocabularies) -> None:
    """There is its noise. In the middle of a character there is none to share."""
    engine = Scripted(writes(pair, " fox"))
    async with translating(engine, pair, "intersection") as translated:
        prompt, emoji = ids(pair, "What does it say?"), ids(pair, "😀")
        sampling = SamplingParams(temperature=0.7, seed=5, max_tokens=100, bad_words=((3,),))
        translated.send([OpenSequence(1, prompt, sampling), Propose(1, len(prompt), (), 2)])
        await translated.answer()
        used, length = engine.used[1], len(engine.tokens[1])
        assert (used.sampling.temperature, used.sampling.seed, used.sampling.bad_words) == (0.7, 5, ())
        assert length + used.position_shift == len(prompt) != length
        translated.send([Propose(1, len(prompt) + len(emoji) - 1, emoji[:-1], 2)])
        await translated.answer()
        assert engine.used[1].vocabulary == 0


async def test_in_rejection_mode_text_is_certain(pair: Vocabularies) -> None:
    """It was not drawn from anything that the target could be told."""
    engine = Scripted(writes(pair, " fox"))
    async with translating(engine, pair, "text") as translated:
        translated.send([OpenSequence(1, (5, 6), REJECTION), Propose(1, 2, (), 4)])
        proposal = await translated.answer()
        assert isinstance(proposal, Proposal)
        assert [(each.probs, each.token_ids) for each in proposal.draft_probs] == [
            ((1.0,), (token_id,)) for token_id in proposal.draft_token_ids
        ]
        assert engine.opened[1].sampling.temperature == 0


async def test_trees_and_drafts_made_ahead_are_mapped_where_tokens_are_common(pair: Vocabularies) -> None:
    one, two, three = list(pair.target_ids)[:3]
    mapped = pair.target_ids
    ahead, tree = PredraftRequest(8, (0.5,)), TreeRequest(4, 2)

    def branches(command: Propose) -> Event:
        if command.ahead:
            return Predrafted(1, command.base_length, (one,), (1, 0), (two, three), (three, two))
        return Proposal(1, command.base_length, (one, two), parents=(-1, -1))

    engine = Scripted(branches)
    async with translating(engine, pair, "intersection") as translated:
        translated.send([OpenSequence(1, (5, 6), GREEDY), Propose(1, 2, (), 2, tree=tree)])
        proposal = await translated.answer()
        assert proposal == Proposal(1, 2, (mapped[one], mapped[two]), parents=(-1, -1))
        translated.send([Propose(1, 2, (), 1, ahead=ahead)])
        own, drafts = (mapped[two], mapped[three]), (mapped[three], mapped[two])
        assert await translated.answer() == Predrafted(1, 2, (mapped[one],), (1, 0), own, drafts)
        translated.send([Propose(1, 2, (), 2, tree=TreeRequest(4, 2, 0.1))])
        await translated.answer()
        assert engine.asked[-1].tree is None, "of these tokens it does not know how likely they are"
    engine = Scripted(writes(pair, " fox"))
    async with translating(engine, pair, "text") as translated:
        translated.send([OpenSequence(1, (5, 6), GREEDY), Propose(1, 2, (), 2, tree=tree, ahead=ahead)])
        await translated.answer()
        assert (engine.asked[0].tree, engine.asked[0].ahead) == (None, None)


async def test_an_answer_after_the_next_question_is_to_its_own(pair: Vocabularies) -> None:
    """Else it would be taken for the next one's, of which fewer drafts may be asked."""
    one, two, *_ = pair.target_ids
    mapped = pair.target_ids
    engine = Scripted(lambda _: None)
    async with translating(engine, pair, "intersection") as translated:
        new = ids(pair, " fox")
        translated.send([OpenSequence(1, (5, 6), GREEDY), Propose(1, 2, (), 4, ahead=PredraftRequest(8, (0.5,)))])
        translated.send([OpenSequence(2, (5, 6), GREEDY), Propose(2, 2, (), 4)])
        async with asyncio.timeout(10):
            while len(engine.asked) < 2:
                await translated.receive()
        translated.send([Propose(1, 2 + len(new), new, 1)])
        first, _, second = engine.asked
        engine.queue.put([Proposal(1, first.base_length, (one, two, one, two))])
        engine.queue.put([Predrafted(1, first.base_length, (one,), (1,), (two,), (one,))])
        engine.queue.put([Proposal(1, second.base_length, (two,))])
        assert await translated.answer() == Proposal(1, 2, ())
        assert await translated.answer() == Predrafted(1, 2, (mapped[one],), (1,), (mapped[two],), (mapped[one],))
        assert await translated.answer() == Proposal(1, 2 + len(new), (mapped[two],))


async def test_auto_goes_by_the_text(pair: Vocabularies) -> None:
    engine = Scripted(writes(pair, " fox"))
    common, own = list(pair.drafter_ids), [each for each in range(3, 300) if each not in pair.drafter_ids]
    assert own
    async with translating(engine, pair, "auto") as translated:
        translated.send([OpenSequence(1, tuple(common[:20]), GREEDY), OpenSequence(2, tuple(own[:20]), GREEDY)])
        translated.send([Propose(1, 20, (), 2)])
        await translated.answer()
        translated.send([Propose(2, 20, (), 2)])
        await translated.answer()
        assert engine.used[1].vocabulary
        assert 2 not in engine.used


async def test_what_is_wrong_is_told_in_the_targets_lengths(pair: Vocabularies) -> None:
    failure = SequenceError(1, SequenceErrorCode.RESOURCE_EXHAUSTED, "full", 77)
    engine = Scripted(lambda _: failure, max_context_tokens=40)
    async with translating(engine, pair, "text") as translated:
        translated.send([OpenSequence(1, (5, 6), GREEDY), Propose(1, 2, (), 2)])
        assert await translated.answer() == msgspec.structs.replace(failure, base_length=2)
        translated.send([Propose(1, 9, (5,), 2), Propose(9, 2, (), 2)])
        for base_length in (9, 2):
            error = await translated.answer()
            assert isinstance(error, SequenceError)
            assert (error.code, error.base_length) == (SequenceErrorCode.UNKNOWN_SEQUENCE, base_length)
        long = ids(pair, "The quick brown fox jumps. " * 10)
        translated.send([Propose(1, 2 + len(long), long, 2)])
        error = await translated.answer()
        assert isinstance(error, SequenceError)
        assert (error.code, error.base_length) == (SequenceErrorCode.INVALID, 2 + len(long))
        assert "the draft model's context of 40 tokens is full" in error.message
        translated.send([OpenSequence(2, long, GREEDY)])
        error = await translated.answer()
        assert isinstance(error, SequenceError)
        assert (error.sequence_id, error.code) == (2, SequenceErrorCode.INVALID)


async def test_each_family_of_targets_has_its_own_tokens(pair: Vocabularies) -> None:
    """A peer's sequences are in the tokens of its tokenizer; the drafter's own are left alone."""
    words = Vocabularies(trained_tokenizer("byte_bpe", 300), pair.drafter, 2)
    engine = Scripted(writes(pair, " fox and"))
    own = tuple(pair.drafter.encode("The quick"))
    families = [Family.translated(engine.model, pair), Family.translated(engine.model, words), Family(engine.model)]
    # Trained tokenizers of one kind are told apart by nothing but their fingerprints.
    families[1] = Family(msgspec.structs.replace(families[1].model, tokenizer_fingerprint="words"), words)
    front = Front(engine, families, "text")
    assert front.model_for("words") == families[1].model
    assert front.model_for("theirs") == engine.model
    assert front.model_for("unknown") is None
    for sequence_id, fingerprint in ((2, "words"), (3, "theirs")):
        front.assign(sequence_id, fingerprint)
    drafts = {}
    for sequence_id, prompt in ((1, ids(pair, "The quick")), (2, ids(words, "The quick")), (3, own)):
        front.send([OpenSequence(sequence_id, prompt, GREEDY), Propose(sequence_id, len(prompt), (), 3)])
        proposal = await front.answer()
        assert isinstance(proposal, Proposal)
        assert (proposal.sequence_id, proposal.base_length) == (sequence_id, len(prompt))
        drafts[sequence_id] = proposal.draft_token_ids
    assert drafts[1] == ids(pair, " fox and")[:3]
    assert drafts[2] == ids(words, " fox and")[:3] != drafts[1]
    assert engine.opened[3].prompt_token_ids == own
    assert drafts[3] == tuple(pair.drafter_continuation.encode(" fox and")[0])[:3]
    front.send([CloseSequence(3)])
    assert 3 not in engine.tokens
    await front.close()


async def test_a_sequence_that_closes_while_it_opens_is_gone(pair: Vocabularies) -> None:
    engine = Scripted(writes(pair, " fox"))
    async with translating(engine, pair, "text") as translated:
        translated.send([OpenSequence(1, (5, 6), GREEDY), Propose(1, 2, (), 2), CloseSequence(1)])
        translated.send([OpenSequence(2, (5, 6), GREEDY), Propose(2, 2, (), 2)])
        assert (await translated.answer()).sequence_id == 2
        translated.send([CloseSequence(2)])
        assert set(engine.opened) == {2}
        assert not engine.tokens


async def test_the_engines_loss_is_told(pair: Vocabularies) -> None:
    engine = Scripted(writes(pair, " fox"))
    async with translating(engine, pair, "text") as translated:
        engine.queue.fail(UnavailableError("the engine has ended"))
        with pytest.raises(UnavailableError, match="the engine has ended"):
            await translated.receive()
        with pytest.raises(UnavailableError):
            translated.send([OpenSequence(1, (5, 6), GREEDY)])


async def test_a_target_whose_tokenizer_is_not_here(tmp_path: Path) -> None:
    """Of a draft service on a machine of its own, whose configuration may not name the target."""
    engine, config = Scripted(lambda _: None), Config(target=TargetConfig(model=str(tmp_path)))
    with pytest.raises(ModelError, match=r"target\.model \(.*\) and draft\.targets: .* draft\.vocabulary to same"):
        await translated(engine, config)
    assert engine.is_closed

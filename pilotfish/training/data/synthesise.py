"""Synthesis: training data from nothing but the target, or from prompts that it answers first.

A chat model continues `<user turn begins>` with a question that its own training made likely; asked that question, it
answers. From a few first words it also writes documents, which tasks are made of (summarise this): more like the texts
of the world than its answers are. All runs in our own engine, and what that computes of an answer is kept with it.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from pilotfish.chat import ChatMessage
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.errors import InternalError, UnsupportedModelError
from pilotfish.messages import CloseSequence, Decode, OpenSequence, SequenceError, Verdict
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.data.prompts import Prompt, PromptQueue
from pilotfish.training.data.recorder import FeatureRecorder
from pilotfish.training.data.samples import SHARD_TOKENS, Sample, SampleStore
from pilotfish.training.data.task_prompts import OPENINGS, wrap_in_task
from pilotfish.training.data.user_turn import clean_question, user_turn_prefix
from pilotfish.types import FinishReason, SamplingParams

_MAX_USELESS_TURNS = 1000
"""Turns in a row without a conversation after which the target counts as unable to write usable ones."""

_POOL_SIZE = 512
"""Earlier questions and passages that tasks are made of."""

_MIN_DOCUMENT_WORDS = 30


@dataclass(frozen=True, kw_only=True)
class SynthesisConfig:
    """What is sampled, and how."""

    num_answer_tokens: int
    """Stop when the store holds so many."""
    answers_per_prompt: int = 1
    """Answers to each of the given prompts."""
    num_sequences: int = 64
    """Sequences in flight at once."""
    max_question_tokens: int = 160
    max_answer_tokens: int = 256
    min_answer_tokens: int = 8
    """Shorter answers are dropped."""
    max_prompt_tokens: int = 1024
    """Longer prompts (tasks over long passages) are dropped."""
    max_document_tokens: int = 300
    document_share: float = 0.1
    """Share of sequences that write a document."""
    task_share: float = 0.4
    """Share of prompts that wrap earlier text into a task."""
    follow_up_share: float = 0.1
    """Share of answers that the user is made to ask on about."""
    greedy_share: float = 0.5
    """Share of greedy answers, of a given prompt one at most; the others are sampled at temperature 0.7, top-p 0.95."""
    seed: int = 0


class _Kind(enum.Enum):
    DOCUMENT = enum.auto()
    QUESTION = enum.auto()
    ANSWER = enum.auto()


@dataclass(slots=True)
class _Turn:
    """One sequence in flight."""

    kind: _Kind
    prompt: tuple[int, ...]
    chat: tuple[ChatMessage, ...]
    """The turns before this one."""
    prompt_index: int | None
    """Index of a given prompt; None: the target's own."""
    output: list[int] = field(default_factory=list)


class Synthesiser:
    """Keeps an engine full of conversations and stores the finished ones."""

    def __init__(
        self,
        core: EngineCore,
        recorder: FeatureRecorder,
        tokenizer: Tokenizer,
        config: SynthesisConfig,
        prompts: Sequence[Prompt] = (),
    ) -> None:
        """recorder: the core's feature store. prompts: answered before the target's own.

        Raises UnsupportedModelError when the target's chat template has no user turn to begin.
        """
        self._core = core
        self._recorder = recorder
        self._tokenizer = tokenizer
        self._config = config
        self._user_prefix = user_turn_prefix(tokenizer, ())
        self._turns: dict[int, _Turn] = {}
        self._next_id = 1
        self._num_useless = 0
        self._draw = Random(config.seed)
        self._questions: deque[str] = deque(maxlen=_POOL_SIZE)
        self._passages: deque[str] = deque(maxlen=_POOL_SIZE)
        self._asked: set[str] = set()
        # Longer ones would leave no room for an answer.
        room = core.model.max_context_tokens - config.min_answer_tokens
        self._max_prompt_tokens = min(config.max_prompt_tokens, room)
        self._prompts = prompts
        self._queue = PromptQueue((), 0, 0, Counter())
        self._samples: list[Sample] = []
        """Finished since the last shard."""
        self._answered: list[int] = []

    def run(self, store: SampleStore, on_progress: Callable[[int, str], None] = lambda *_: None) -> int:
        """Add to the store until it holds num_answer_tokens; returns how many it holds.

        Goes on where a killed run stopped, of which the last shard at most is missing. on_progress gets the answer
        tokens so far and how many prompts are answered. Raises UnsupportedModelError when the target writes nothing
        that can be used, OSError when the disk is full.
        """
        num_tokens = self._resume(store)
        try:
            on_progress(num_tokens, self._queue.note)
            while num_tokens < self._config.num_answer_tokens:
                while len(self._turns) < self._config.num_sequences:
                    self._begin()
                for event in self._core.step():
                    sample = self._receive(event) if isinstance(event, Verdict | SequenceError) else None
                    if sample is not None:
                        self._num_useless = 0
                        self._samples.append(sample)
                        num_tokens += sample.num_answer_tokens
                        on_progress(num_tokens, self._queue.note)
                if sum(len(sample.token_ids) for sample in self._samples) >= SHARD_TOKENS:
                    self._store(store)
        finally:
            self._store(store)
        return num_tokens

    def _store(self, store: SampleStore) -> None:
        """Make a shard of what has finished."""
        samples, self._samples = self._samples, []
        answered, self._answered = self._answered, []
        store.add(samples, end=store.num_conversations + len(samples), answered=answered)

    def _resume(self, store: SampleStore) -> int:
        """Read what is there; the random numbers that follow depend on how much it is."""
        num_tokens = 0
        recent: deque[Sample] = deque(maxlen=_POOL_SIZE)
        for sample in store.read():
            num_tokens += sample.num_answer_tokens
            recent.append(sample)
        self._passages.extend(
            self._tokenizer.decode(sample.token_ids[sample.prompt_len :].tolist()) for sample in recent
        )
        self._draw = Random(f"{self._config.seed}:{store.num_conversations}")
        answers_each = self._config.answers_per_prompt
        self._queue = PromptQueue(self._prompts, answers_each, self._max_prompt_tokens, store.answered)
        return num_tokens

    def _begin(self) -> None:
        """Open the answer to a given prompt; without any a document, a task about earlier text, or a user's turn."""
        if self._queue:
            self._answer(*self._queue.take())
        elif self._draw.random() < self._config.document_share:
            opening = self._tokenizer.encode(self._draw.choice(OPENINGS))
            self._open(_Kind.DOCUMENT, tuple(opening), (), 1.0, self._config.max_document_tokens)
        elif self._questions and self._passages and self._draw.random() < self._config.task_share:
            self._ask((ChatMessage("user", wrap_in_task(self._draw, self._questions, self._passages)),))
        else:
            self._open(_Kind.QUESTION, self._user_prefix, (), 1.0, self._config.max_question_tokens)

    def _ask(self, chat: tuple[ChatMessage, ...]) -> None:
        """Open the answer to a chat whose last question was not asked before."""
        prompt = tuple(self._tokenizer.apply_chat_template(chat))
        question = chat[-1].content
        if question in self._asked or len(prompt) > self._max_prompt_tokens:
            return
        self._asked.add(question)
        self._open_answer(prompt, chat, self._draw.random() < self._config.greedy_share)

    def _answer(self, index: int, number: int, prompt: Prompt) -> None:
        """Open one of the answers to a given prompt."""
        # More than one greedy answer would be the same.
        greedy_share = self._config.greedy_share * self._config.answers_per_prompt
        is_greedy = number == 0 and self._draw.random() < greedy_share
        self._open_answer(prompt.token_ids, (ChatMessage("user", prompt.text),), is_greedy, index)

    def _open_answer(
        self, prompt: tuple[int, ...], chat: tuple[ChatMessage, ...], is_greedy: bool, prompt_index: int | None = None
    ) -> None:
        self._recorder.watch(self._next_id)
        temperature = 0.0 if is_greedy else 0.7
        # The last token of an answer is computed as well, which decides one more.
        max_tokens = self._config.max_answer_tokens + 1
        self._open(_Kind.ANSWER, prompt, chat, temperature, max_tokens, prompt_index)

    def _follow_up(self, chat: tuple[ChatMessage, ...]) -> None:
        """Open a user's next turn."""
        prefix = user_turn_prefix(self._tokenizer, chat)
        if len(prefix) + self._config.max_question_tokens <= self._max_prompt_tokens:
            self._open(_Kind.QUESTION, prefix, chat, 1.0, self._config.max_question_tokens)

    def _open(
        self,
        kind: _Kind,
        prompt: tuple[int, ...],
        chat: tuple[ChatMessage, ...],
        temperature: float,
        max_tokens: int,
        prompt_index: int | None = None,
    ) -> None:
        sequence_id, self._next_id = self._next_id, self._next_id + 1
        self._turns[sequence_id] = _Turn(kind, prompt, chat, prompt_index)
        sampling = SamplingParams(
            temperature=temperature,
            top_p=0.95,
            seed=self._draw.getrandbits(63),
            max_tokens=max_tokens,
            stop_token_ids=() if kind is _Kind.ANSWER else tuple(sorted(self._tokenizer.eos_token_ids)),
        )
        self._core.submit(OpenSequence(sequence_id, prompt, sampling))
        self._core.submit(Decode(sequence_id, len(prompt), max_tokens))

    def _receive(self, event: Verdict | SequenceError) -> Sample | None:
        if isinstance(event, SequenceError):
            raise InternalError(f"the engine failed to synthesise: {event.message}")
        turn = self._turns[event.sequence_id]
        turn.output.extend(event.token_ids)
        is_stopped = event.finish_reason is FinishReason.STOP
        if turn.kind is _Kind.ANSWER:
            is_stopped = len(turn.output) > 1 and turn.output[-2] in self._tokenizer.eos_token_ids
        if event.finish_reason is None and not is_stopped:
            return None
        del self._turns[event.sequence_id]
        if event.finish_reason is None:
            self._core.submit(CloseSequence(event.sequence_id))
        self._num_useless += 1
        if self._num_useless > _MAX_USELESS_TURNS:
            raise UnsupportedModelError(
                f"the target wrote {_MAX_USELESS_TURNS} turns in a row that are no questions or no answers: "
                "give --data instead"
            )
        if turn.kind is _Kind.ANSWER:
            return self._finish_answer(event.sequence_id, turn, is_stopped)
        self._use(turn, is_stopped)
        return None

    def _use(self, turn: _Turn, is_stopped: bool) -> None:
        """A document is a passage from now on, a question is asked."""
        text = self._tokenizer.decode(turn.output).strip()
        if turn.kind is _Kind.DOCUMENT:
            if len(text.split()) >= _MIN_DOCUMENT_WORDS:
                self._passages.append(text)
            return
        question = clean_question(text)
        if question is not None and is_stopped:
            self._questions.append(question)
            self._ask((*turn.chat, ChatMessage("user", question)))

    def _finish_answer(self, sequence_id: int, turn: _Turn, is_stopped: bool) -> Sample | None:
        """The sample of an answer that is long enough; the user may ask on about one of the target's own prompts."""
        answer = turn.output[:-1]
        if turn.prompt_index is not None:
            self._answered.append(turn.prompt_index)
        text = self._tokenizer.decode(answer).strip()
        if not text or len(answer) < self._config.min_answer_tokens:
            self._recorder.forget(sequence_id)
            return None
        self._passages.append(text)
        is_own = turn.prompt_index is None
        if is_own and is_stopped and self._draw.random() < self._config.follow_up_share:
            self._follow_up((*turn.chat, ChatMessage("assistant", text)))
        return self._recorder.take_sample(sequence_id, len(turn.prompt), [*turn.prompt, *answer])

"""Self-synthesis: training data from nothing but the target.

A chat model continues `<user turn begins>` with a question that its own training made likely; asked that
question, it answers. From a few first words it also writes documents, which tasks are made of (summarise this,
answer from these): more like the texts of the world than its answers are. All of it runs in our own engine, many
sequences at once.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pilotfish.engine.core import EngineCore
from pilotfish.errors import InternalError, UnsupportedModelError
from pilotfish.messages import Decode, OpenSequence, SequenceError, Verdict
from pilotfish.models.tokenizer import Tokenizer
from pilotfish.speculation.common_prefix import num_common_tokens
from pilotfish.training.conversations import Conversation, ConversationWriter, read_conversations
from pilotfish.training.task_prompts import OPENINGS, wrap_in_task
from pilotfish.types import ChatMessage, FinishReason, SamplingParams

_MAX_USELESS_TURNS = 1000
"""So many in a row without a conversation: this target does not write usable turns."""

_POOL_SIZE = 512
"""Earlier questions and passages that tasks are made of."""

_MIN_DOCUMENT_WORDS = 30


@dataclass(frozen=True, kw_only=True)
class SynthesisConfig:
    """What is sampled, and how."""

    num_answer_tokens: int
    """Stop when the file holds so many."""
    num_sequences: int = 64
    """In flight at once."""
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
    """Share of greedy answers; the others are sampled at temperature 0.7, top-p 0.95."""
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
    output: list[int]


class Synthesiser:
    """Keeps an engine full of conversations and appends each finished one to a file."""

    def __init__(self, core: EngineCore, tokenizer: Tokenizer, config: SynthesisConfig) -> None:
        """Raises UnsupportedModelError when the target's chat template has no user turn to begin."""
        self._core = core
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

    def run(self, path: Path, on_progress: Callable[[int], None] = lambda _: None) -> int:
        """Append to path until it holds num_answer_tokens; returns how many it holds.

        Goes on where a killed run stopped. on_progress gets the answer tokens so far.
        Raises InvalidRequestError for a file of another model, UnsupportedModelError when the target writes nothing
        that can be used, OSError when the disk is full.
        """
        with ConversationWriter(path) as writer:
            num_tokens = self._resume(path)
            on_progress(num_tokens)
            while num_tokens < self._config.num_answer_tokens:
                while len(self._turns) < self._config.num_sequences:
                    self._begin()
                for event in self._core.step():
                    conversation = self._receive(event) if isinstance(event, Verdict | SequenceError) else None
                    if conversation is not None:
                        self._num_useless = 0
                        writer.append(conversation)
                        num_tokens += conversation.num_answer_tokens
                        on_progress(num_tokens)
        return num_tokens

    def _resume(self, path: Path) -> int:
        """Read what is there; the random numbers that follow depend on how much it is."""
        num_tokens = 0
        for conversation in read_conversations(path, self._core.model.vocab_size):
            num_tokens += conversation.num_answer_tokens
            answer = self._tokenizer.decode(conversation.token_ids[conversation.prompt_len :]).strip()
            self._passages.append(answer)
        self._draw = Random(f"{self._config.seed}:{path.stat().st_size}")
        return num_tokens

    def _begin(self) -> None:
        """Open a document, a task about earlier text, or a user's turn."""
        if self._draw.random() < self._config.document_share:
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
        if question in self._asked or len(prompt) > self._config.max_prompt_tokens:
            return
        self._asked.add(question)
        temperature = 0.0 if self._draw.random() < self._config.greedy_share else 0.7
        self._open(_Kind.ANSWER, prompt, chat, temperature, self._config.max_answer_tokens)

    def _follow_up(self, chat: tuple[ChatMessage, ...]) -> None:
        """Open a user's next turn."""
        prefix = user_turn_prefix(self._tokenizer, chat)
        if len(prefix) + self._config.max_question_tokens <= self._config.max_prompt_tokens:
            self._open(_Kind.QUESTION, prefix, chat, 1.0, self._config.max_question_tokens)

    def _sampling(self, temperature: float, max_tokens: int) -> SamplingParams:
        return SamplingParams(
            temperature=temperature,
            top_p=0.95,
            seed=self._draw.getrandbits(63),
            max_tokens=max_tokens,
            stop_token_ids=tuple(sorted(self._tokenizer.eos_token_ids)),
        )

    def _open(
        self, kind: _Kind, prompt: tuple[int, ...], chat: tuple[ChatMessage, ...], temperature: float, max_tokens: int
    ) -> None:
        sequence_id, self._next_id = self._next_id, self._next_id + 1
        self._turns[sequence_id] = _Turn(kind, prompt, chat, [])
        self._core.submit(OpenSequence(sequence_id, prompt, self._sampling(temperature, max_tokens)))
        self._core.submit(Decode(sequence_id, len(prompt), max_tokens))

    def _receive(self, event: Verdict | SequenceError) -> Conversation | None:
        if isinstance(event, SequenceError):
            raise InternalError(f"the engine failed to synthesise: {event.message}")
        turn = self._turns[event.sequence_id]
        turn.output.extend(event.token_ids)
        if event.finish_reason is None:
            return None
        del self._turns[event.sequence_id]
        self._num_useless += 1
        if self._num_useless > _MAX_USELESS_TURNS:
            raise UnsupportedModelError(
                f"the target wrote {_MAX_USELESS_TURNS} turns in a row that are no questions or no answers: "
                "give --data instead"
            )
        return self._finish(turn, event.finish_reason)

    def _finish(self, turn: _Turn, reason: FinishReason) -> Conversation | None:
        """Use what was written; an answer makes a conversation."""
        text = self._tokenizer.decode(turn.output).strip()
        match turn.kind:
            case _Kind.DOCUMENT:
                if len(text.split()) >= _MIN_DOCUMENT_WORDS:
                    self._passages.append(text)
            case _Kind.QUESTION:
                question = clean_question(text)
                if question is not None and reason is FinishReason.STOP:
                    self._questions.append(question)
                    self._ask((*turn.chat, ChatMessage("user", question)))
            case _Kind.ANSWER:
                if text and len(turn.output) >= self._config.min_answer_tokens:
                    self._passages.append(text)
                    if reason is FinishReason.STOP and self._draw.random() < self._config.follow_up_share:
                        self._follow_up((*turn.chat, ChatMessage("assistant", text)))
                    return Conversation(len(turn.prompt), [*turn.prompt, *turn.output])
        return None


def user_turn_prefix(tokenizer: Tokenizer, chat: tuple[ChatMessage, ...]) -> tuple[int, ...]:
    """The tokens of the chat template up to the words of the user's next turn.

    Raises UnsupportedModelError when the template puts nothing before them.
    """
    one, other = (tokenizer.apply_chat_template([*chat, ChatMessage("user", word)]) for word in ("Hello", "42"))
    length = num_common_tokens(one, other)
    if length == 0:
        raise UnsupportedModelError("the target's chat template begins with the user's words: give --data instead")
    return tuple(one[:length])


def clean_question(text: str) -> str | None:
    """A user's turn without the blanks around it; None when there is nothing to answer."""
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    has_words = len(re.findall(r"\w", text)) >= 8
    return text if has_words and len(text.split()) >= 3 else None

"""A model's tokenizer without transformers, so that processes without torch can hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import tokenizers

from pilotfish.chat import ChatMessage
from pilotfish.errors import InvalidRequestError, PromptTooLongError, UnsupportedModelError
from pilotfish.models.store.folder import ModelMetadata, read_metadata
from pilotfish.models.tokens.chat_template import DEFAULT_OPTIONS, ChatTemplate, TemplateOptions, load_chat_template
from pilotfish.models.tokens.continuation import Continuation
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.models.tokens.token_bytes import TokenBytes

_ALWAYS_ENCODED_CHARS = 65_536
"""Characters that are tokenised whatever the context: that is cheap, and some callers ask how many tokens they are."""
_MAX_CONTEXTS, _MAX_BEYOND_TOKENS = 4, 262_144
"""Contexts, and tokens, that a text may have that is cut to the context: a token takes 150 bytes (measured)."""
_PIECE_CHARS, _PIECE_SLACK_TOKENS = 8192, 32
"""Size of the pieces that are counted beforehand, and tokens that cuts within words may add to one."""


class Tokenizer:
    """Text and chats to token ids and back, with the limits of the model they belong to.

    Safe to share between threads: nothing changes after loading but memos, which would be computed twice.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        metadata: ModelMetadata,
        chat_template: ChatTemplate | None,
        fingerprint: str,
        folder: Path,
    ) -> None:
        self.folder = folder
        """Where it was loaded from."""
        self._backend = backend
        # A tokenizer.json may carry its trainer's settings; they would cut or pad prompts.
        self._backend.no_truncation()
        self._backend.no_padding()
        self._metadata = metadata
        self._chat_template = chat_template
        self.fingerprint = fingerprint
        self.special_token_ids: frozenset[int] = frozenset(
            token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special
        )
        self.token_bytes = TokenBytes(backend, self.special_token_ids)
        self._all_token_bytes = TokenBytes(backend, ())

    @classmethod
    def load(cls, folder: Path | str, chat_template: str = "") -> Tokenizer:
        """Load from a model folder (config.json, tokenizer.json). chat_template: a file in place of the folder's.

        Raises: ModelNotFoundError, UnsupportedModelError, ConfigError for a chat_template that cannot be read.
        """
        folder = Path(folder)
        fingerprint = tokenizer_fingerprint(folder)
        try:
            backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises bare Exception
            raise UnsupportedModelError(f"{folder / 'tokenizer.json'} cannot be loaded: {error}") from error
        return cls(backend, read_metadata(folder), load_chat_template(folder, chat_template), fingerprint, folder)

    def encode(self, text: str, *, max_tokens: int | None = None, add_special_tokens: bool = True) -> list[int]:
        """Token ids of raw text, with the tokens that the model's tokenizer adds around it (as transformers does).

        max_tokens: the context. Of a text of several contexts PromptTooLongError is raised before all of it is looked
        at; of others the tokens may still be more.
        """
        return self._encode(text, max_tokens, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of token ids; ids that the tokenizer does not know are left out."""
        return str(self._backend.decode(token_ids, skip_special_tokens=skip_special))

    def bytes_by_token(self, *, skip_special: bool) -> TokenBytes:
        """What each token adds to a text."""
        return self.token_bytes if skip_special else self._all_token_bytes

    def special_token_id(self, text: str) -> int | None:
        """The special token that is written so; None: there is none."""
        token_id = self._backend.token_to_id(text)
        return token_id if token_id in self.special_token_ids else None

    def bytes_of(self, token_id: int) -> bytes:
        """What the token adds to an answer's text, which may be a part of a character; nothing if it is special."""
        return self.token_bytes[token_id]

    def apply_chat_template(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = DEFAULT_OPTIONS,
        *,
        max_tokens: int | None = None,
    ) -> list[int]:
        """Token ids of a chat; tools: definitions as in the OpenAI API.

        max_tokens: see `encode`.

        The template writes the special tokens itself, so none is added around it.
        Raises: InvalidRequestError when the model has no template or the template refuses the messages.
        """
        if self._chat_template is None:
            raise InvalidRequestError("this model has no chat template: send text or token ids instead")
        if not messages:
            raise InvalidRequestError("the chat has no messages")
        return self._encode(self._chat_template.render(messages, tools, options), max_tokens, add_special_tokens=False)

    def _encode(self, text: str, max_tokens: int | None, *, add_special_tokens: bool) -> list[int]:
        if max_tokens is not None and len(text) > _ALWAYS_ENCODED_CHARS:
            limit = max(max_tokens, min(_MAX_CONTEXTS * max_tokens, _MAX_BEYOND_TOKENS))
            if self._has_more_tokens(text, limit):
                raise PromptTooLongError(
                    f"the prompt has {len(text)} characters, and more than {limit} tokens; the context has "
                    f"{max_tokens}",
                    param="prompt",
                )
        # A batch of one: `encode` keeps the GIL (3.5 s for 4 MB, measured), `encode_batch_fast` lets it go.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        token_ids: list[int] = encoding.ids
        return token_ids

    def _has_more_tokens(self, text: str, limit: int) -> bool:
        """Never true of a text that has fewer; may be false of one that has a few more.

        Found out a piece at a time: 4 MB of digits at once take 20 s and 600 MB (measured)."""
        max_bytes = len(text) if text.isascii() else 4 * len(text)
        if max_bytes <= limit:
            return False  # each token stands for a byte or more
        for begin in range(0, len(text), _PIECE_CHARS):
            (piece,) = self._backend.encode_batch_fast([text[begin : begin + _PIECE_CHARS]], add_special_tokens=False)
            limit -= max(0, len(piece) - _PIECE_SLACK_TOKENS)
            if limit < 0:
                return True
        return False

    @property
    def chat_template(self) -> str:
        """The template as it is written; empty: the model has none."""
        return "" if self._chat_template is None else self._chat_template.source

    @property
    def template_variables(self) -> Set[str]:
        """What the chat template reads of a request's own."""
        return frozenset() if self._chat_template is None else self._chat_template.variables

    def continuation(self) -> Continuation:
        """Tokenises texts in their middle."""
        return Continuation(self._backend)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self._metadata.eos_token_ids

    @property
    def vocab_size(self) -> int:
        """The model's vocabulary size (the width of its logits)."""
        return self._metadata.vocab_size

    @property
    def max_context_tokens(self) -> int:
        """Prompt plus output at most, by the model."""
        return self._metadata.max_context_tokens

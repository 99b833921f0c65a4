"""POST /v1/completions: the request."""

from __future__ import annotations

from orchestrator.http.completions.sampling import GenerationFields
from orchestrator.requests.prompt import TextPrompt, TokenPrompt
from orchestrator.requests.request import check_number
from pilotfish.errors import InvalidRequestError
from pilotfish.types import MAX_LOGPROBS

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default."""

MAX_TOKEN_ID = 2**32 - 1
"""The largest token id of any vocabulary; tokenizers and messages cannot even hold a larger one."""

RawPrompt = str | list[str | int | list[int]]
"""Text or token ids, one or several."""


class CompletionRequest(GenerationFields, kw_only=True):
    """The body."""

    prompt: RawPrompt
    logprobs: int | None = None
    echo: bool | None = False
    """The text begins with the prompt."""
    best_of: int | None = None
    suffix: str | None = None
    add_special_tokens: bool | None = True
    """Texts get the tokens that the model's tokenizer adds around them."""

    @property
    def num_logprobs(self) -> int | None:
        """The number as SamplingParams has it."""
        return 0 if self.is_choosing and self.logprobs is None else self.logprobs

    @property
    def num_drawn(self) -> int | None:
        return self.n if self.best_of is None else self.best_of

    @property
    def num_kept(self) -> int:
        """Answers to each prompt that are returned: the likeliest of those drawn, token by token."""
        return 1 if self.n is None else self.n

    @property
    def is_choosing(self) -> bool:
        """Whether there are more to choose from."""
        return self.best_of is not None and self.best_of > self.num_kept

    def max_output_tokens(self) -> int:
        """How long the answer may be."""
        return 1 if self.is_prompt_only else DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def is_prompt_only(self) -> bool:
        """Whether nothing but the prompt is wanted: its echo, its log-probabilities, or only that it is cached."""
        return self.max_tokens == 0

    @property
    def num_prompt_logprobs(self) -> int | None:
        """The larger of what an echo and `prompt_logprobs` need."""
        numbers = (self.logprobs if self.echo else None, self.prompt_logprobs)
        return max((number for number in numbers if number is not None), default=None)

    def prompts(self) -> list[TextPrompt | TokenPrompt]:
        """One or several. Raises InvalidRequestError."""
        return prompts_of(self.prompt, add_special_tokens=self.add_special_tokens is not False)

    def check_supported(self) -> None:
        """Raises InvalidRequestError for what cannot be served."""
        if self.logprobs is not None:
            check_number("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.best_of is not None and self.best_of < self.num_kept:
            raise InvalidRequestError(f"best_of is {self.best_of}; it must be at least n", param="best_of")
        if self.is_choosing and self.stream:
            raise InvalidRequestError("best_of above n does not stream: the best is known at the end", param="best_of")
        if self.suffix:
            raise InvalidRequestError("suffix is not served", param="suffix")


def prompts_of(prompt: RawPrompt, *, add_special_tokens: bool = True) -> list[TextPrompt | TokenPrompt]:
    """Raises InvalidRequestError for an empty list, and for one of several kinds."""
    if prompt == []:
        raise InvalidRequestError("prompt is empty; it must have at least one token", param="prompt")
    if isinstance(prompt, str):
        prompt = [prompt]
    texts = [item for item in prompt if isinstance(item, str)]
    if len(texts) == len(prompt):
        return [TextPrompt(text, add_special_tokens) for text in texts]
    token_ids = [item for item in prompt if isinstance(item, int)]
    if len(token_ids) == len(prompt):
        return [_token_prompt(token_ids)]
    lists = [item for item in prompt if isinstance(item, list)]
    if len(lists) == len(prompt):
        return [_token_prompt(item) for item in lists]
    raise InvalidRequestError(
        "prompt must hold texts, token ids or lists of token ids, not several kinds", param="prompt"
    )


def _token_prompt(token_ids: list[int]) -> TokenPrompt:
    for token_id in (min(token_ids, default=0), max(token_ids, default=0)):
        if not 0 <= token_id <= MAX_TOKEN_ID:
            raise InvalidRequestError(f"prompt holds token id {token_id}", param="prompt")
    return TokenPrompt(token_ids)

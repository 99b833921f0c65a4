"""What answers to chats and to completions have in common besides their text."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import msgspec

from orchestrator.answers.output import OutputChunk
from orchestrator.http.completions.answers import Finished, Sample
from orchestrator.http.completions.envelope import Envelope
from orchestrator.http.completions.logprobs import PromptLogprobs, prompt_logprobs
from orchestrator.http.completions.speculation import ChoiceDetails, TokenDetails, token_details
from pilotfish.models.tokens.tokenizer import Tokenizer


@dataclass
class CommonFormat:
    """What one request wants in its answers."""

    envelope: Envelope
    tokenizer: Tokenizer
    _: KW_ONLY
    returns_tokens: bool = False
    returns_token_ids: bool = False
    includes_usage: bool = False
    has_running_usage: bool = False
    num_prompt_logprobs: int | None = None

    @property
    def no_usage(self) -> msgspec.UnsetType | None:
        """The usage field of events that have none."""
        return None if self.includes_usage else msgspec.UNSET

    def prompt_token_ids(self, sample: Sample) -> list[int] | msgspec.UnsetType:
        """The prompt's token ids, where they are wanted."""
        return sample.prompt_token_ids if self.returns_token_ids else msgspec.UNSET

    def token_ids(self, chunk: OutputChunk) -> list[int] | msgspec.UnsetType:
        return list(chunk.token_ids) if self.returns_token_ids else msgspec.UNSET

    def token_details(self, chunk: OutputChunk) -> TokenDetails | None:
        return token_details(chunk, self.tokenizer) if self.returns_tokens else None

    def running_details(self, chunk: OutputChunk) -> ChoiceDetails | msgspec.UnsetType:
        """The details of an answer that goes on."""
        return ChoiceDetails(self.token_details(chunk)) if self.returns_tokens else msgspec.UNSET

    def prompt_logprobs(self, answer: Finished) -> PromptLogprobs | msgspec.UnsetType | None:
        if self.num_prompt_logprobs is None:
            return msgspec.UNSET
        return prompt_logprobs(answer.chunk, answer.sample.prompt_token_ids, self.tokenizer, self.num_prompt_logprobs)

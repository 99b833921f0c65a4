"""The prompts of a request to generate: their tokens, and the answers that are wanted to each."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.http.completions.answers import Sample
from orchestrator.http.completions.sampling import GenerationFields, check_num_choices, sample_options
from orchestrator.inference import InferenceService
from orchestrator.requests.caller import Caller
from orchestrator.requests.prompt import Prompt, TextPrompt, TokenPrompt, prompt_text
from orchestrator.requests.request import GenerationOptions
from pilotfish.config import OrchestratorConfig
from pilotfish.errors import InvalidRequestError


class PromptReader:
    """Reads prompts in their caller's turn and within its limits."""

    def __init__(self, service: InferenceService, config: OrchestratorConfig) -> None:
        self._service = service
        self._config = config

    async def echoed(
        self,
        prompts: Sequence[TextPrompt | TokenPrompt],
        samples: Sequence[Sample],
        caller: Caller,
        max_context_tokens: int,
    ) -> list[str]:
        """Each prompt as it was given, or what is left of it. samples: none where no prompt can have been cut."""
        token_ids = {sample.prompt_index: sample.prompt_token_ids for sample in samples}
        run, texts = self._service.run_for(caller.client_id), []
        for index, prompt in enumerate(prompts):
            kept = token_ids.get(index)
            if kept is not None and len(kept) < len(await self._service.token_ids_of(prompt, caller.client_id)):
                prompt = TokenPrompt(kept)
            texts.append(await prompt_text(prompt, self._service.tokenizer, max_context_tokens, run))
        return texts

    async def samples(
        self,
        fields: GenerationFields,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        caller: Caller,
        max_context_tokens: int,
        *,
        is_tokenized: bool = False,
    ) -> list[Sample]:
        """The answers that are wanted, to each prompt as many."""
        with caller.preparation():
            samples = await self._drawn(fields, prompts, options, caller, max_context_tokens, is_tokenized)
        if options.num_prompt_logprobs is not None:
            num_tokens = sum(len(sample.prompt_token_ids) for sample in samples)
            self._check_prompt_logprobs(num_tokens * (1 + options.num_prompt_logprobs))
        return samples

    async def _drawn(
        self,
        fields: GenerationFields,
        prompts: Sequence[Prompt],
        options: GenerationOptions,
        caller: Caller,
        max_context_tokens: int,
        is_tokenized: bool,
    ) -> list[Sample]:
        num_kept = _num_kept_tokens(fields.truncate_prompt_tokens, options, max_context_tokens)
        num_choices = check_num_choices(fields.num_drawn, len(prompts), self._config.http.max_choices)
        is_tokenized = is_tokenized or options.num_prompt_logprobs is not None
        samples = []
        for prompt_index, prompt in enumerate(prompts):
            if is_tokenized or num_choices > 1 or num_kept or fields.return_token_ids or fields.has_running_usage:
                # Tokenised once for all of them.
                token_ids = await self._service.token_ids_of(prompt, caller.client_id)
                prompt = TokenPrompt(token_ids[-num_kept:] if num_kept else token_ids, prompt.is_chat)
            for index in range(num_choices):
                choice_index = prompt_index * num_choices + index
                # A seed of the request's own gives a prompt the same answers wherever it stands among others; where it
                # was drawn, a prompt that stands there twice is to have answers of its own each time.
                seed_index = choice_index if fields.seed is None else index
                samples.append(Sample(choice_index, prompt_index, prompt, sample_options(options, seed_index)))
        return samples

    def _check_prompt_logprobs(self, num_asked: int) -> None:
        limit = self._config.max_prompt_logprobs
        if num_asked > limit:
            raise InvalidRequestError(
                f"the request asks for {num_asked} log-probabilities of prompt tokens (tokens, times one more than the "
                f"likeliest returned, times answers); at most {limit} are served (orchestrator.max_prompt_logprobs)",
                param="prompt_logprobs",
            )


def _num_kept_tokens(asked: int | None, options: GenerationOptions, max_context_tokens: int) -> int:
    """Tokens to keep of the end of each prompt; 0: all. Raises InvalidRequestError."""
    if asked is None:
        return 0
    if asked < -1 or asked == 0 or asked > max_context_tokens:
        raise InvalidRequestError(
            f"truncate_prompt_tokens is {asked}; it must be -1, or between 1 and {max_context_tokens}",
            param="truncate_prompt_tokens",
        )
    # Where the answer may fill the context, it gets the one token that it needs.
    num_output_tokens = options.sampling.max_tokens if options.sampling.max_tokens < max_context_tokens else 1
    return max_context_tokens - num_output_tokens if asked == -1 else asked

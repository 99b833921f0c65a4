"""POST /tokenize and POST /detokenize, as vLLM has them."""

from __future__ import annotations

from typing import Any

import msgspec

from orchestrator.http.completions.chat_request import ChatCompletionRequest, Message, ToolDefinition
from orchestrator.http.completions.request_fields import NO_EFFECT, RequestFields, RequestReader
from orchestrator.http.completions.served_model import served_model
from orchestrator.http.exchange import Exchange
from orchestrator.inference import InferenceService
from orchestrator.requests.prompt import TextPrompt, text_of_tokens
from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer


class TokenizeRequest(RequestFields, kw_only=True):
    """Text, or a chat that the model's template formats as it would for an answer."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = False
    tools: list[ToolDefinition] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    add_special_tokens: bool | None = None
    """None: to a text, as completions do. A chat's are the template's affair."""
    return_token_strs: bool | None = False

    def text_or_chat(self) -> TextPrompt | ChatCompletionRequest:
        """Raises InvalidRequestError unless there is exactly one."""
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequestError("set either prompt or messages", param="prompt")
        if self.prompt is not None:
            return TextPrompt(self.prompt, self.add_special_tokens is not False)
        return ChatCompletionRequest(
            messages=self.messages or [],
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            tools=self.tools,
            chat_template_kwargs=self.chat_template_kwargs,
            documents=self.documents,
            reasoning_effort=self.reasoning_effort,
        )

    def unread_fields(self, chat: ChatCompletionRequest, tokenizer: Tokenizer) -> dict[str, str]:
        """Fields that change nothing of the chat, each with the reason."""
        special = ("add_special_tokens",) if self.add_special_tokens else ()
        return {**chat.unread_fields(tokenizer), **{name: NO_EFFECT[name] for name in special}}


class TokenizeResponse(msgspec.Struct, kw_only=True):
    """The body of the answer."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeRequest(RequestFields, kw_only=True):
    """Token ids."""

    model: str | None = None
    tokens: list[int]


class DetokenizeResponse(msgspec.Struct):
    """The text of the tokens, special tokens included."""

    prompt: str


class TokenizationApi:
    """The endpoints."""

    def __init__(self, service: InferenceService, *, is_strict: bool) -> None:
        self._service = service
        self._tokenize_reader = RequestReader(TokenizeRequest, is_strict=is_strict)
        self._detokenize_reader = RequestReader(DetokenizeRequest, is_strict=is_strict)

    async def tokenize(self, exchange: Exchange) -> None:
        """POST /tokenize."""
        caller = exchange.caller
        run = self._service.run_for(caller.client_id)
        fields = await self._tokenize_reader.read(exchange, run)
        model = await served_model(self._service, fields.model)
        tokenizer = self._service.tokenizer
        given = fields.text_or_chat()
        if isinstance(given, ChatCompletionRequest):
            exchange.param_names = {"prompt": "messages"}
            self._tokenize_reader.ignore(exchange, fields.unread_fields(given, tokenizer))
        prompt = given if isinstance(given, TextPrompt) else given.prompt(given.tool_use())
        token_strs = None
        with caller.request():
            token_ids = list(await self._service.token_ids_of(prompt, caller.client_id))
            if fields.return_token_strs:
                token_strs = await run(lambda: [tokenizer.decode([each], skip_special=False) for each in token_ids])
        await exchange.reply(
            TokenizeResponse(
                count=len(token_ids), max_model_len=model.max_context_tokens, tokens=token_ids, token_strs=token_strs
            )
        )

    async def detokenize(self, exchange: Exchange) -> None:
        """POST /detokenize."""
        caller = exchange.caller
        run = self._service.run_for(caller.client_id)
        fields = await self._detokenize_reader.read(exchange, run)
        model = await served_model(self._service, fields.model)
        if fields.tokens and min(fields.tokens) < 0:
            raise InvalidRequestError(f"token id {min(fields.tokens)} is not in the vocabulary", param="tokens")
        tokenizer = self._service.tokenizer
        with caller.request():
            text = await text_of_tokens("tokens", fields.tokens, tokenizer, model.max_context_tokens, run)
        await exchange.reply(DetokenizeResponse(text))

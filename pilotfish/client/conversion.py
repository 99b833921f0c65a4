"""The public API's messages to and from plain values, for the clients."""

from __future__ import annotations

from pilotfish.client.answer import GenerateOptions, Prompt, ServiceInfo, TokenPrompt
from pilotfish.errors import InvalidRequestError
from pilotfish.rpc.conversion import grammar_to_proto
from pilotfish.rpc.v1 import inference_pb2 as pb

_MODES = {
    "": pb.SPECULATION_MODE_UNSPECIFIED,
    "auto": pb.SPECULATION_MODE_AUTO,
    "on": pb.SPECULATION_MODE_ON,
    "off": pb.SPECULATION_MODE_OFF,
}
_SPECULATION_FIELDS = (
    *("num_speculative_tokens", "proposer", "level", "step_judge", "step_threshold", "acceptance"),
    "learn",
)
_UINT32, _INT64 = (0, 2**32 - 1), (-(2**63), 2**63 - 1)
_RANGES = {
    "max_tokens": _UINT32,
    "min_tokens": _UINT32,
    "top_k": _UINT32,
    "seed": _INT64,
    "logprobs": _UINT32,
    "num_speculative_tokens": _UINT32,
}
"""What a message can hold; the orchestrator says what it takes of it."""


def request_to_proto(prompt: Prompt, options: GenerateOptions) -> pb.GenerateRequest:
    """A request for an answer. Raises InvalidRequestError for numbers that no message holds."""
    for name, (least, most) in _RANGES.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise InvalidRequestError(f"{name} is {value}; it must be between {least} and {most}")
    for token_id in options.allowed_token_ids:
        if not _UINT32[0] <= token_id <= _UINT32[1]:
            raise InvalidRequestError(f"allowed_token_ids holds {token_id}, which is no token id")
    values = dict(vars(options))
    mode, grammar = _MODES[values.pop("speculation")], values.pop("grammar")
    speculation = {name: values.pop(name) for name in _SPECULATION_FIELDS}  # of acceptance the values are equal
    request = pb.GenerateRequest(
        **values,
        speculation=pb.SpeculationOptions(mode=mode, **speculation),
        grammar=None if grammar is None else grammar_to_proto(grammar),
    )
    set_prompt(request, prompt)
    return request


def set_prompt(request: pb.GenerateRequest | pb.TokenizeRequest, prompt: Prompt) -> None:
    """Fill in the prompt in its own form. Raises InvalidRequestError for token ids that no message holds."""
    if isinstance(prompt, str):
        request.text = prompt
    elif isinstance(prompt, TokenPrompt):
        try:
            request.tokens.token_ids.extend(prompt.token_ids)
        except ValueError:  # does not say which
            least, most = _UINT32
            wrong = ((at, each) for at, each in enumerate(prompt.token_ids) if not least <= each <= most)
            position, token_id = next(wrong)
            raise InvalidRequestError(f"token {position} of the prompt is {token_id}, which is no token id") from None
    else:
        messages = (pb.ChatMessage(role=message.role, content=message.content) for message in prompt)
        request.chat.messages.extend(messages)


def info_from_proto(response: pb.GetModelInfoResponse) -> ServiceInfo:
    """The model and the pools behind an address."""
    return ServiceInfo(
        model_id=response.model.model_id,
        dtype=response.model.dtype,
        deterministic=response.model.deterministic,
        max_context_tokens=response.model.max_context_tokens,
        num_target_replicas=response.num_target_replicas,
        num_draft_replicas=response.num_draft_replicas,
        max_draft_tokens=response.limits.max_draft_tokens,
        proposers=tuple(response.proposers),
        drafter=response.model.proposer,
        version=response.version,
        emulated=response.model.emulated,
    )

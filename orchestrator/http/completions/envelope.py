"""What every answer to one request says of itself."""

from __future__ import annotations

import hashlib
import secrets
import time

import msgspec

import pilotfish
from orchestrator.requests.request import GenerationOptions
from pilotfish.rpc.answer import Summary
from pilotfish.types import FinishReason, ModelInfo

_FINISH_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.CANCELLED: "stop"}


class Envelope(msgspec.Struct, kw_only=True):
    """Fields of every answer, equal in all events of a stream: its base."""

    id: str
    created: int
    """Unix time in seconds."""
    model: str
    system_fingerprint: str


def new_envelope(prefix: str, model: ModelInfo) -> Envelope:
    """prefix: begins the id, such as `chatcmpl-`."""
    return Envelope(
        id=f"{prefix}{secrets.token_hex(12)}",
        created=int(time.time()),
        model=model.model_id,
        system_fingerprint=fingerprint_of(model),
    )


def fingerprint_of(model: ModelInfo) -> str:
    """Equal fingerprints and seeds give equal answers, as far as the model is deterministic."""
    parts = (model.model_id, model.tokenizer_fingerprint, model.dtype, model.deterministic, pilotfish.__version__)
    return f"fp_{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def finish_reason_of(reason: FinishReason) -> str:
    """The reason in OpenAI's words."""
    return _FINISH_REASONS[reason]


def stop_reason_of(report: Summary, options: GenerationOptions) -> str | int | None:
    """The reason as in vLLM: the stop string or token that the request named and that ended the answer, if one did."""
    is_token = isinstance(report.stopped_by, int)
    return None if is_token and report.stopped_by not in options.sampling.stop_token_ids else report.stopped_by

"""Values of pilotfish.types and pilotfish.messages that both streams carry <-> protos.

`*_to_proto` raises ValueError (protobuf's own) for a number that its field cannot hold. `*_from_proto`
raises InvalidRequestError for what is well-formed protobuf but no valid value.
"""

from __future__ import annotations

import enum
from itertools import pairwise
from typing import TypeVar

from pilotfish.errors import InvalidRequestError
from pilotfish.features import FeatureFormat, FeatureRequest, Features
from pilotfish.messages import OpenSequence, SequenceError
from pilotfish.rpc.v1 import types_pb2 as pb
from pilotfish.step_table import StepTable
from pilotfish.types import (
    AcceptanceMode,
    FinishReason,
    Grammar,
    GrammarKind,
    Limits,
    LoadReport,
    ModelInfo,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    Timings,
    TokenLogprobs,
    TreeRequest,
)

_Enum = TypeVar("_Enum", bound=enum.IntEnum)


def enum_from_proto(kind: type[_Enum], number: int) -> _Enum:
    """The member with this number; InvalidRequestError names the enum and what it knows."""
    try:
        return kind(number)
    except ValueError:
        known = ", ".join(f"{member.name} ({member.value})" for member in kind)
        raise InvalidRequestError(f"{kind.__name__} {number} is unknown here; known are {known}") from None


def finish_reason_from_proto(number: int) -> FinishReason | None:
    """UNSPECIFIED stands for a sequence that goes on."""
    return enum_from_proto(FinishReason, number) if number else None


def grammar_to_proto(grammar: Grammar) -> pb.Grammar:
    return pb.Grammar(kind=pb.GrammarKind.ValueType(grammar.kind), text=grammar.text)


def grammar_from_proto(proto: pb.Grammar) -> Grammar:
    return Grammar(enum_from_proto(GrammarKind, proto.kind), proto.text)


def sampling_to_proto(sampling: SamplingParams) -> pb.SamplingParams:
    return pb.SamplingParams(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=[pb.LogitBias(token_id=token_id, bias=bias) for token_id, bias in sampling.logit_bias],
        seed=sampling.seed,
        acceptance=pb.AcceptanceMode.ValueType(sampling.acceptance),
        max_tokens=sampling.max_tokens,
        stop_token_ids=sampling.stop_token_ids,
        num_logprobs=sampling.num_logprobs,
        grammar=None if sampling.grammar is None else grammar_to_proto(sampling.grammar),
    )


def sampling_from_proto(proto: pb.SamplingParams) -> SamplingParams:
    return SamplingParams(
        temperature=proto.temperature,
        top_k=proto.top_k,
        top_p=proto.top_p,
        min_p=proto.min_p,
        repetition_penalty=proto.repetition_penalty,
        presence_penalty=proto.presence_penalty,
        frequency_penalty=proto.frequency_penalty,
        logit_bias=tuple((item.token_id, item.bias) for item in proto.logit_bias),
        seed=proto.seed,
        acceptance=enum_from_proto(AcceptanceMode, proto.acceptance),
        max_tokens=proto.max_tokens,
        stop_token_ids=tuple(proto.stop_token_ids),
        num_logprobs=proto.num_logprobs if proto.HasField("num_logprobs") else None,
        grammar=grammar_from_proto(proto.grammar) if proto.HasField("grammar") else None,
    )


def distribution_to_proto(distribution: SparseDistribution) -> pb.SparseDistribution:
    return pb.SparseDistribution(token_ids=distribution.token_ids, probs=distribution.probs)


def distribution_from_proto(proto: pb.SparseDistribution) -> SparseDistribution:
    if len(proto.token_ids) != len(proto.probs):
        raise InvalidRequestError(
            f"a sparse distribution has {len(proto.token_ids)} token ids and {len(proto.probs)} probabilities"
        )
    return SparseDistribution(tuple(proto.token_ids[:]), tuple(proto.probs[:]))


def logprobs_to_proto(logprobs: TokenLogprobs) -> pb.TokenLogprobs:
    return pb.TokenLogprobs(
        logprob=logprobs.logprob, top_token_ids=logprobs.top_token_ids, top_logprobs=logprobs.top_logprobs
    )


def logprobs_from_proto(proto: pb.TokenLogprobs) -> TokenLogprobs:
    return TokenLogprobs(proto.logprob, tuple(proto.top_token_ids), tuple(proto.top_logprobs))


def fill_timings(proto: pb.Timings, timings: Timings) -> None:
    """Write timings into an empty field of a message."""
    if timings.queue_time_ns:
        proto.queue_time_ns = timings.queue_time_ns
    if timings.compute_time_ns:
        proto.compute_time_ns = timings.compute_time_ns


def timings_from_proto(proto: pb.Timings) -> Timings:
    return Timings(proto.queue_time_ns, proto.compute_time_ns)


def model_to_proto(model: ModelInfo) -> pb.ModelInfo:
    return pb.ModelInfo(
        model_id=model.model_id,
        tokenizer_fingerprint=model.tokenizer_fingerprint,
        vocab_size=model.vocab_size,
        max_context_tokens=model.max_context_tokens,
        dtype=model.dtype,
        deterministic=model.deterministic,
        proposer=model.proposer,
        emulated=model.emulated,
        tokenizer_path=model.tokenizer_path,
        feature_layers=model.feature_layers,
        feature_format=pb.FeatureFormat.ValueType(model.feature_format or 0),
    )


def model_from_proto(proto: pb.ModelInfo) -> ModelInfo:
    return ModelInfo(
        model_id=proto.model_id,
        tokenizer_fingerprint=proto.tokenizer_fingerprint,
        vocab_size=proto.vocab_size,
        max_context_tokens=proto.max_context_tokens,
        dtype=proto.dtype,
        deterministic=proto.deterministic,
        proposer=proto.proposer,
        emulated=proto.emulated,
        tokenizer_path=proto.tokenizer_path,
        feature_layers=tuple(proto.feature_layers),
        feature_format=enum_from_proto(FeatureFormat, proto.feature_format) if proto.feature_format else None,
    )


def tree_request_to_proto(request: TreeRequest) -> pb.TreeRequest:
    return pb.TreeRequest(max_nodes=request.max_nodes, branching=request.branching)


def tree_request_from_proto(proto: pb.TreeRequest) -> TreeRequest:
    return TreeRequest(proto.max_nodes, proto.branching)


def feature_request_to_proto(request: FeatureRequest) -> pb.FeatureRequest:
    return pb.FeatureRequest(first_position=request.first_position, format=pb.FeatureFormat.ValueType(request.format))


def feature_request_from_proto(proto: pb.FeatureRequest) -> FeatureRequest:
    return FeatureRequest(proto.first_position, enum_from_proto(FeatureFormat, proto.format))


def features_to_proto(features: Features) -> pb.Features:
    return pb.Features(
        first_position=features.first_position,
        num_tokens=features.num_tokens,
        format=pb.FeatureFormat.ValueType(features.format),
        data=features.data,
    )


def features_from_proto(proto: pb.Features) -> Features | None:
    """None for what cannot be features: whoever wants them can do without, whoever sends them is needed."""
    is_whole = proto.num_tokens > 0 and len(proto.data) > 0 and len(proto.data) % proto.num_tokens == 0
    if not is_whole or int(proto.format) not in FeatureFormat.__members__.values():
        return None
    return Features(proto.first_position, proto.num_tokens, FeatureFormat(proto.format), proto.data)


def limits_to_proto(limits: Limits) -> pb.Limits:
    return pb.Limits(max_draft_tokens=limits.max_draft_tokens, max_sequences=limits.max_sequences)


def limits_from_proto(proto: pb.Limits) -> Limits:
    return Limits(max_draft_tokens=proto.max_draft_tokens, max_sequences=proto.max_sequences)


def load_to_proto(load: LoadReport) -> pb.LoadReport:
    table = load.step_table
    return pb.LoadReport(
        num_sequences_running=load.num_sequences_running,
        num_sequences_waiting=load.num_sequences_waiting,
        num_kv_blocks_used=load.num_kv_blocks_used,
        num_kv_blocks_total=load.num_kv_blocks_total,
        step_time_ns=load.step_time_ns,
        draining=load.draining,
        num_preemptions=load.num_preemptions,
        num_sequences_decoding=load.num_sequences_decoding,
        num_step_tokens=load.num_step_tokens,
        prefill_time_ns=load.prefill_time_ns,
        num_grammar_deaths=load.num_grammar_deaths,
        step_table=pb.StepTable(rows=table.rows, step_time_ns=table.step_ns) if table.rows else None,
    )


def load_from_proto(proto: pb.LoadReport) -> LoadReport:
    return LoadReport(
        num_sequences_running=proto.num_sequences_running,
        num_sequences_waiting=proto.num_sequences_waiting,
        num_kv_blocks_used=proto.num_kv_blocks_used,
        num_kv_blocks_total=proto.num_kv_blocks_total,
        step_time_ns=proto.step_time_ns,
        draining=proto.draining,
        num_preemptions=proto.num_preemptions,
        num_sequences_decoding=proto.num_sequences_decoding,
        num_step_tokens=proto.num_step_tokens,
        prefill_time_ns=proto.prefill_time_ns,
        num_grammar_deaths=proto.num_grammar_deaths,
        step_table=_step_table_from_proto(proto.step_table) if proto.HasField("step_table") else StepTable(),
    )


def _step_table_from_proto(proto: pb.StepTable) -> StepTable:
    """Empty for what cannot be a table: the load beside it is needed."""
    table = StepTable(tuple(proto.rows), tuple(proto.step_time_ns))
    is_ascending = all(before < after for before, after in pairwise(table.rows))
    return table if is_ascending and len(table.rows) == len(table.step_ns) else StepTable()


def open_to_proto(command: OpenSequence) -> pb.OpenSequence:
    return pb.OpenSequence(
        sequence_id=command.sequence_id,
        prompt_token_ids=command.prompt_token_ids,
        output_token_ids=command.output_token_ids,
        sampling=sampling_to_proto(command.sampling),
        traceparent=command.traceparent,
    )


def open_from_proto(proto: pb.OpenSequence, sequence_id: int) -> OpenSequence:
    """sequence_id: what the sequence is called here."""
    return OpenSequence(
        sequence_id=sequence_id,
        prompt_token_ids=tuple(proto.prompt_token_ids),
        output_token_ids=tuple(proto.output_token_ids),
        sampling=sampling_from_proto(proto.sampling),
        traceparent=proto.traceparent,
    )


def error_to_proto(error: SequenceError, sequence_id: int) -> pb.SequenceError:
    """sequence_id: what the peer calls the sequence."""
    return pb.SequenceError(
        sequence_id=sequence_id,
        code=pb.SequenceErrorCode.ValueType(error.code),
        message=error.message,
        base_length=error.base_length,
        param=error.param,
    )


def error_from_proto(proto: pb.SequenceError) -> SequenceError:
    code = enum_from_proto(SequenceErrorCode, proto.code)
    return SequenceError(proto.sequence_id, code, proto.message, proto.base_length, proto.param)

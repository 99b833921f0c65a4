"""Values of pilotfish.types and pilotfish.messages that both streams carry <-> protos.

`*_to_proto` raises ValueError (protobuf's own) for a number that its field cannot hold. `*_from_proto`
raises InvalidRequestError for what is well-formed protobuf but no valid value.
"""

from __future__ import annotations

import enum
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from pilotfish.errors import InvalidRequestError
from pilotfish.features import FeatureRequest, Features
from pilotfish.messages import CloseSequence, OpenSequence, Predrafted, SequenceError
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


def values_of(proto: Any, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """What the message has in the fields of the struct, which have the same names."""
    return {name: getattr(proto, name) for name in kind.__struct_fields__}


def finish_reason_from_proto(number: int) -> FinishReason | None:
    """UNSPECIFIED stands for a sequence that goes on."""
    return enum_from_proto(FinishReason, number) if number else None


def grammar_to_proto(grammar: Grammar) -> pb.Grammar:
    return pb.Grammar(kind=pb.GrammarKind.ValueType(grammar.kind), text=grammar.text)


def grammar_from_proto(proto: pb.Grammar) -> Grammar:
    return Grammar(enum_from_proto(GrammarKind, proto.kind), proto.text)


def sampling_to_proto(sampling: SamplingParams) -> pb.SamplingParams:
    values = msgspec.structs.asdict(sampling)
    values["logit_bias"] = [pb.LogitBias(token_id=token_id, bias=bias) for token_id, bias in sampling.logit_bias]
    values["grammar"] = None if sampling.grammar is None else grammar_to_proto(sampling.grammar)
    values["bad_words"] = [pb.BadWord(token_ids=token_ids) for token_ids in sampling.bad_words]
    return pb.SamplingParams(**values)


def sampling_from_proto(proto: pb.SamplingParams) -> SamplingParams:
    values = values_of(proto, SamplingParams)
    values["logit_bias"] = tuple((item.token_id, item.bias) for item in proto.logit_bias)
    values["acceptance"] = enum_from_proto(AcceptanceMode, proto.acceptance)
    values["stop_token_ids"] = tuple(proto.stop_token_ids)
    values["num_logprobs"] = proto.num_logprobs if proto.HasField("num_logprobs") else None
    values["grammar"] = grammar_from_proto(proto.grammar) if proto.HasField("grammar") else None
    values["bad_words"] = tuple(tuple(item.token_ids) for item in proto.bad_words)
    values["allowed_token_ids"] = tuple(proto.allowed_token_ids)
    return SamplingParams(**values)


def distribution_to_proto(distribution: SparseDistribution) -> pb.SparseDistribution:
    return pb.SparseDistribution(token_ids=distribution.token_ids, probs=distribution.probs)


def distribution_from_proto(proto: pb.SparseDistribution) -> SparseDistribution:
    if len(proto.token_ids) != len(proto.probs):
        raise InvalidRequestError(
            f"a sparse distribution has {len(proto.token_ids)} token ids and {len(proto.probs)} probabilities"
        )
    return SparseDistribution(tuple(proto.token_ids[:]), tuple(proto.probs[:]))


def logprobs_to_proto(logprobs: TokenLogprobs) -> pb.TokenLogprobs:
    return pb.TokenLogprobs(**msgspec.structs.asdict(logprobs))


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
    return pb.ModelInfo(**msgspec.structs.asdict(model))


def model_from_proto(proto: pb.ModelInfo) -> ModelInfo:
    values = values_of(proto, ModelInfo)
    values["feature_layers"] = tuple(proto.feature_layers)
    return ModelInfo(**values)


def tree_request_to_proto(request: TreeRequest) -> pb.TreeRequest:
    """Without a price, which goes to no target: that knows its own."""
    return pb.TreeRequest(max_nodes=request.max_nodes, branching=request.branching)


def tree_request_from_proto(proto: pb.TreeRequest) -> TreeRequest:
    return TreeRequest(proto.max_nodes, proto.branching)


def feature_request_to_proto(request: FeatureRequest) -> pb.FeatureRequest:
    return pb.FeatureRequest(**msgspec.structs.asdict(request))


def feature_request_from_proto(proto: pb.FeatureRequest) -> FeatureRequest:
    return FeatureRequest(proto.first_position, proto.int8)


def features_to_proto(features: Features) -> pb.Features:
    return pb.Features(**msgspec.structs.asdict(features))


def features_from_proto(proto: pb.Features) -> Features | None:
    """Features; None for what cannot be any: whoever wants them can do without, whoever sends them is needed."""
    is_whole = proto.num_tokens > 0 and len(proto.data) > 0 and len(proto.data) % proto.num_tokens == 0
    return Features(proto.first_position, proto.num_tokens, proto.data) if is_whole else None


def limits_to_proto(limits: Limits) -> pb.Limits:
    return pb.Limits(**msgspec.structs.asdict(limits))


def limits_from_proto(proto: pb.Limits) -> Limits:
    return Limits(**values_of(proto, Limits))


def load_to_proto(load: LoadReport) -> pb.LoadReport:
    table, values = load.step_table, msgspec.structs.asdict(load)
    values["step_table"] = pb.StepTable(rows=table.rows, step_time_ns=table.step_ns) if table.rows else None
    return pb.LoadReport(**values)


def load_from_proto(proto: pb.LoadReport) -> LoadReport:
    values = values_of(proto, LoadReport)
    values["step_table"] = _step_table_from_proto(proto.step_table) if proto.HasField("step_table") else StepTable()
    return LoadReport(**values)


def _step_table_from_proto(proto: pb.StepTable) -> StepTable:
    """Empty for what cannot be a table: the load beside it is needed."""
    table = StepTable(tuple(proto.rows), tuple(proto.step_time_ns))
    is_ascending = all(before < after for before, after in pairwise(table.rows))
    return table if is_ascending and len(table.rows) == len(table.step_ns) else StepTable()


def fill_open(proto: pb.OpenSequence, command: OpenSequence) -> None:
    proto.sequence_id = command.sequence_id
    proto.prompt_token_ids.extend(command.prompt_token_ids)
    proto.output_token_ids.extend(command.output_token_ids)
    proto.sampling.CopyFrom(sampling_to_proto(command.sampling))
    proto.traceparent = command.traceparent
    proto.cache_salt = command.cache_salt
    proto.client = command.client
    proto.learn_as = command.learn_as


def open_from_proto(proto: pb.OpenSequence, sequence_id: int) -> OpenSequence:
    """sequence_id: what the sequence is called here."""
    return OpenSequence(
        sequence_id=sequence_id,
        prompt_token_ids=tuple(proto.prompt_token_ids),
        output_token_ids=tuple(proto.output_token_ids),
        sampling=sampling_from_proto(proto.sampling),
        traceparent=proto.traceparent,
        cache_salt=proto.cache_salt,
        client=proto.client,
        learn_as=proto.learn_as,
    )


def fill_prepared(proto: pb.PreparedDrafts, drafts: Predrafted, sequence_id: int | None = None) -> None:
    """sequence_id: what it is called there; None: as here."""
    proto.sequence_id = drafts.sequence_id if sequence_id is None else sequence_id
    proto.base_length = drafts.base_length
    proto.verified_token_ids.extend(drafts.verified_token_ids)
    proto.num_accepted_tokens.extend(drafts.num_accepted_tokens)
    proto.own_token_ids.extend(drafts.own_token_ids)
    proto.draft_token_ids.extend(drafts.draft_token_ids)
    if drafts.draft_probs:
        proto.draft_probs.extend(map(distribution_to_proto, drafts.draft_probs))
    if drafts.drafter_version:
        proto.drafter_version = drafts.drafter_version


def prepared_from_proto(proto: pb.PreparedDrafts, sequence_id: int | None = None) -> Predrafted:
    """sequence_id: what it is called here; None: as there. Raises InvalidRequestError."""
    num_outcomes = len(proto.own_token_ids)
    if num_outcomes == 0 or len(proto.num_accepted_tokens) != num_outcomes or len(proto.draft_token_ids) % num_outcomes:
        raise InvalidRequestError("drafts made ahead do not fit their outcomes")
    return Predrafted(
        proto.sequence_id if sequence_id is None else sequence_id,
        proto.base_length,
        tuple(proto.verified_token_ids[:]),
        tuple(proto.num_accepted_tokens[:]),
        tuple(proto.own_token_ids[:]),
        tuple(proto.draft_token_ids[:]),
        tuple(map(distribution_from_proto, proto.draft_probs[:])),
        proto.drafter_version,
    )


def fill_close(proto: pb.CloseSequence, command: CloseSequence) -> None:
    proto.sequence_id = command.sequence_id
    proto.is_finished = command.is_finished


def close_from_proto(proto: pb.CloseSequence, sequence_id: int) -> CloseSequence:
    """sequence_id: what the sequence is called here."""
    return CloseSequence(sequence_id, proto.is_finished)


def fill_error(proto: pb.SequenceError, error: SequenceError, sequence_id: int) -> None:
    """sequence_id: what the peer calls the sequence."""
    proto.sequence_id = sequence_id
    proto.code = pb.SequenceErrorCode.ValueType(error.code)
    proto.message = error.message
    proto.base_length = error.base_length
    proto.param = error.param


def error_from_proto(proto: pb.SequenceError) -> SequenceError:
    code = enum_from_proto(SequenceErrorCode, proto.code)
    return SequenceError(proto.sequence_id, code, proto.message, proto.base_length, proto.param)

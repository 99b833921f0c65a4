"""Frames of pilotfish.v1.Target: commands and events <-> protos."""

from __future__ import annotations

from types import MappingProxyType

from pilotfish.messages import (
    CloseSequence,
    Decode,
    Event,
    Opened,
    OpenSequence,
    Predrafted,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.rpc import conversion
from pilotfish.rpc.frames import CLOSE, ERROR, OPEN, FrameCodec, Item
from pilotfish.rpc.v1 import target_pb2 as pb
from pilotfish.rpc.v1 import types_pb2
from pilotfish.types import NO_TIMINGS

MAX_JOINED_TOKENS = 256
"""Plain tokens joined in one item: what waits for a peer that does not read stays countable in items."""


def _fill_verify(proto: pb.Verify, command: Verify) -> None:
    proto.sequence_id = command.sequence_id
    proto.base_length = command.base_length
    proto.draft_token_ids.extend(command.draft_token_ids)
    if command.draft_probs:
        proto.draft_probs.extend(map(conversion.distribution_to_proto, command.draft_probs))
    if command.parents:
        proto.parents.extend(command.parents)
    if command.features is not None:
        proto.features.CopyFrom(conversion.feature_request_to_proto(command.features))
    if command.takes_forced_drafts:
        proto.takes_forced_drafts = True


def _verify_from_proto(proto: pb.Verify, sequence_id: int) -> Verify:
    return Verify(
        sequence_id,
        proto.base_length,
        tuple(proto.draft_token_ids[:]),  # a slice: iterating takes three times as long
        tuple(map(conversion.distribution_from_proto, proto.draft_probs[:])),
        tuple(proto.parents[:]),
        conversion.feature_request_from_proto(proto.features) if proto.HasField("features") else None,
        proto.takes_forced_drafts,
    )


def _fill_decode(proto: pb.Decode, command: Decode) -> None:
    proto.sequence_id = command.sequence_id
    proto.base_length = command.base_length
    proto.num_tokens = command.num_tokens
    proto.num_draft_tokens = command.num_draft_tokens
    if command.features is not None:
        proto.features.CopyFrom(conversion.feature_request_to_proto(command.features))
    if command.tree is not None:
        proto.tree.CopyFrom(conversion.tree_request_to_proto(command.tree))
    if command.takes_forced_drafts:
        proto.takes_forced_drafts = True


def _decode_from_proto(proto: pb.Decode, sequence_id: int) -> Decode:
    return Decode(
        sequence_id,
        proto.base_length,
        proto.num_tokens,
        proto.num_draft_tokens,
        conversion.feature_request_from_proto(proto.features) if proto.HasField("features") else None,
        conversion.tree_request_from_proto(proto.tree) if proto.HasField("tree") else None,
        proto.takes_forced_drafts,
    )


def _fill_verdict(proto: pb.Verdict, event: Verdict, sequence_id: int) -> None:
    # What is unset costs nothing here, on the wire and at the other end: most verdicts are one plain token.
    proto.sequence_id = sequence_id
    proto.base_length = event.base_length
    proto.token_ids.extend(event.token_ids)
    if event.num_draft_tokens:
        proto.num_draft_tokens = event.num_draft_tokens
    if event.num_accepted_tokens:
        proto.num_accepted_tokens = event.num_accepted_tokens
    if event.draft_depth:
        proto.draft_depth = event.draft_depth
    if event.ended_in_leaf:
        proto.ended_in_leaf = True
    if event.num_next_draft_tokens:
        proto.num_next_draft_tokens = event.num_next_draft_tokens
    if event.first_grammar_token:
        proto.first_grammar_token = event.first_grammar_token
    if event.num_grammar_tokens:
        proto.num_grammar_tokens = event.num_grammar_tokens
    if event.replaces_draft:
        proto.replaces_draft = True
    if event.drafter_version:
        proto.drafter_version = event.drafter_version
    if event.timings != NO_TIMINGS:
        conversion.fill_timings(proto.timings, event.timings)
    _fill_rest_of_verdict(proto, event)


def _fill_rest_of_verdict(proto: pb.Verdict, event: Verdict) -> None:
    """Fill in what each step of several that are joined may add."""
    if event.logprobs:
        proto.logprobs.extend(map(conversion.logprobs_to_proto, event.logprobs))
    if event.finish_reason is not None:
        proto.finish_reason = types_pb2.FinishReason.ValueType(event.finish_reason)
    if event.features is not None:
        proto.features.CopyFrom(conversion.features_to_proto(event.features))


def _verdict_from_proto(proto: pb.Verdict) -> Verdict:
    return Verdict(
        proto.sequence_id,
        proto.base_length,
        proto.num_draft_tokens,
        proto.num_accepted_tokens,
        tuple(proto.token_ids[:]),
        tuple(map(conversion.logprobs_from_proto, proto.logprobs[:])),
        conversion.finish_reason_from_proto(proto.finish_reason),
        conversion.timings_from_proto(proto.timings) if proto.HasField("timings") else NO_TIMINGS,
        proto.draft_depth,
        proto.ended_in_leaf,
        conversion.features_from_proto(proto.features) if proto.HasField("features") else None,
        proto.num_next_draft_tokens,
        proto.first_grammar_token,
        proto.num_grammar_tokens,
        proto.replaces_draft,
        proto.drafter_version,
    )


def _fill_opened(proto: pb.Opened, event: Opened, sequence_id: int) -> None:
    proto.sequence_id = sequence_id
    proto.num_cached_tokens = event.num_cached_tokens


class TargetFrames(FrameCodec):
    """The FrameCodec of the target stream."""

    service_name = "pilotfish.v1.Target"
    service = "target"
    request_frame_type = pb.TargetRequestFrame
    response_frame_type = pb.TargetResponseFrame
    requests = MappingProxyType(
        {
            Verify: Item("verify", _fill_verify, _verify_from_proto),
            Decode: Item("decode", _fill_decode, _decode_from_proto),
            Predrafted: Item("prepared", conversion.fill_prepared, conversion.prepared_from_proto),
            OpenSequence: OPEN,
            CloseSequence: CLOSE,
        }
    )
    responses = MappingProxyType(
        {
            Verdict: Item("verdict", _fill_verdict, _verdict_from_proto),
            Opened: Item("opened", _fill_opened, lambda proto: Opened(proto.sequence_id, proto.num_cached_tokens)),
            SequenceError: ERROR,
        }
    )

    def extend(self, response: pb.TargetResponse, event: Event) -> bool:
        """Join plain steps that follow one another: see Verdict in target.proto."""
        if not isinstance(event, Verdict) or event.num_draft_tokens or not response.HasField("verdict"):
            return False
        verdict = response.verdict
        if (
            verdict.num_draft_tokens
            or verdict.finish_reason
            or verdict.HasField("features")
            or len(verdict.token_ids) >= MAX_JOINED_TOKENS
            or verdict.base_length + len(verdict.token_ids) != event.base_length
        ):
            return False
        verdict.token_ids.extend(event.token_ids)
        verdict.timings.compute_time_ns += event.timings.compute_time_ns
        _fill_rest_of_verdict(verdict, event)
        return True

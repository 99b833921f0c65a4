"""Frames of pilotfish.v1.Target: commands and events <-> protos."""

from __future__ import annotations

from typing import assert_never

from pilotfish.errors import InvalidRequestError
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    Opened,
    OpenSequence,
    PreparedDrafts,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.rpc import conversion
from pilotfish.rpc.frames import FrameCodec
from pilotfish.rpc.v1 import target_pb2 as pb
from pilotfish.rpc.v1 import types_pb2
from pilotfish.types import NO_TIMINGS

MAX_JOINED_TOKENS = 256
"""Plain tokens told as one: what waits for a peer that does not read stays countable in items."""


class TargetFrames(FrameCodec):
    """The FrameCodec of the target stream."""

    service_name = "pilotfish.v1.Target"
    service = "target"
    request_frame_type = pb.TargetRequestFrame
    response_frame_type = pb.TargetResponseFrame

    def fill_request(self, request: pb.TargetRequest, command: Command) -> None:
        match command:
            case Verify():
                _fill_verify(request.verify, command)
            case Decode():
                _fill_decode(request.decode, command)
            case OpenSequence():
                request.open.CopyFrom(conversion.open_to_proto(command))
            case CloseSequence():
                request.close.sequence_id = command.sequence_id
            case Propose():
                raise TypeError("a target takes no Propose")
            case _:
                assert_never(command)

    def command(self, request: pb.TargetRequest, sequence_id: int) -> Command:
        kind = request.WhichOneof("item")
        if kind == "verify":
            return _verify_from_proto(request.verify, sequence_id)
        if kind == "decode":
            return _decode_from_proto(request.decode, sequence_id)
        if kind == "open":
            return conversion.open_from_proto(request.open, sequence_id)
        if kind == "close":
            return CloseSequence(sequence_id)
        raise InvalidRequestError("a request holds no item that this version knows")

    def carries(self, event: Event) -> bool:
        return not isinstance(event, Proposal | PreparedDrafts)

    def fill_response(self, response: pb.TargetResponse, event: Event, sequence_id: int) -> None:
        match event:
            case Verdict():
                _fill_verdict(response.verdict, event, sequence_id)
            case Opened():
                response.opened.sequence_id = sequence_id
                response.opened.num_cached_tokens = event.num_cached_tokens
            case SequenceError():
                response.error.CopyFrom(conversion.error_to_proto(event, sequence_id))
            case Proposal() | PreparedDrafts():
                raise TypeError(f"the target stream carries no {type(event).__name__}")
            case _:
                assert_never(event)

    def extend(self, response: pb.TargetResponse, event: Event) -> bool:
        """Plain steps that follow one another are told as one: see Verdict in target.proto."""
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

    def event(self, response: pb.TargetResponse) -> Event:
        kind = response.WhichOneof("item")
        if kind == "verdict":
            return _verdict_from_proto(response.verdict)
        if kind == "opened":
            return Opened(response.opened.sequence_id, response.opened.num_cached_tokens)
        if kind == "error":
            return conversion.error_from_proto(response.error)
        raise InvalidRequestError("a response holds no item that this version knows")


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


def _verify_from_proto(proto: pb.Verify, sequence_id: int) -> Verify:
    return Verify(
        sequence_id,
        proto.base_length,
        tuple(proto.draft_token_ids[:]),  # a slice: iterating takes three times as long
        tuple(map(conversion.distribution_from_proto, proto.draft_probs[:])),
        tuple(proto.parents[:]),
        conversion.feature_request_from_proto(proto.features) if proto.HasField("features") else None,
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


def _decode_from_proto(proto: pb.Decode, sequence_id: int) -> Decode:
    return Decode(
        sequence_id,
        proto.base_length,
        proto.num_tokens,
        proto.num_draft_tokens,
        conversion.feature_request_from_proto(proto.features) if proto.HasField("features") else None,
        conversion.tree_request_from_proto(proto.tree) if proto.HasField("tree") else None,
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
    if event.timings != NO_TIMINGS:
        conversion.fill_timings(proto.timings, event.timings)
    _fill_rest_of_verdict(proto, event)


def _fill_rest_of_verdict(proto: pb.Verdict, event: Verdict) -> None:
    """What each step of several that are told as one may add."""
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
    )

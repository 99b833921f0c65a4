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


class TargetFrames(FrameCodec):
    """The FrameCodec of the target stream."""

    service_name = "pilotfish.v1.Target"
    request_frame_type = pb.TargetRequestFrame
    response_frame_type = pb.TargetResponseFrame

    def request(self, command: Command) -> pb.TargetRequest:
        match command:
            case Verify():
                return pb.TargetRequest(verify=_verify_to_proto(command))
            case Decode():
                return pb.TargetRequest(
                    decode=pb.Decode(
                        sequence_id=command.sequence_id,
                        base_length=command.base_length,
                        num_tokens=command.num_tokens,
                        num_draft_tokens=command.num_draft_tokens,
                        features=conversion.feature_request_to_proto(command.features),
                        tree=conversion.tree_request_to_proto(command.tree),
                    )
                )
            case OpenSequence():
                return pb.TargetRequest(open=conversion.open_to_proto(command))
            case CloseSequence():
                return pb.TargetRequest(close=conversion.close_to_proto(command))
            case Propose():
                raise TypeError("a target takes no Propose")
            case _:
                assert_never(command)

    def command(self, request: pb.TargetRequest) -> Command:
        kind = request.WhichOneof("item")
        if kind == "verify":
            return _verify_from_proto(request.verify)
        if kind == "decode":
            return _decode_from_proto(request.decode)
        if kind == "open":
            return conversion.open_from_proto(request.open)
        if kind == "close":
            return conversion.close_from_proto(request.close)
        raise InvalidRequestError("a request holds no item that this version knows")

    def response(self, event: Event) -> pb.TargetResponse | None:
        match event:
            case Verdict():
                return pb.TargetResponse(verdict=_verdict_to_proto(event))
            case Opened():
                opened = pb.Opened(sequence_id=event.sequence_id, num_cached_tokens=event.num_cached_tokens)
                return pb.TargetResponse(opened=opened)
            case SequenceError():
                return pb.TargetResponse(error=conversion.error_to_proto(event))
            case Proposal():
                return None
            case _:
                assert_never(event)

    def event(self, response: pb.TargetResponse) -> Event:
        kind = response.WhichOneof("item")
        if kind == "verdict":
            return _verdict_from_proto(response.verdict)
        if kind == "opened":
            return Opened(response.opened.sequence_id, response.opened.num_cached_tokens)
        if kind == "error":
            return conversion.error_from_proto(response.error)
        raise InvalidRequestError("a response holds no item that this version knows")


def _verify_to_proto(command: Verify) -> pb.Verify:
    return pb.Verify(
        sequence_id=command.sequence_id,
        base_length=command.base_length,
        draft_token_ids=command.draft_token_ids,
        draft_probs=[conversion.distribution_to_proto(probs) for probs in command.draft_probs],
        parents=command.parents,
        features=conversion.feature_request_to_proto(command.features),
    )


def _verify_from_proto(proto: pb.Verify) -> Verify:
    return Verify(
        sequence_id=proto.sequence_id,
        base_length=proto.base_length,
        draft_token_ids=tuple(proto.draft_token_ids),
        draft_probs=tuple(conversion.distribution_from_proto(probs) for probs in proto.draft_probs),
        parents=tuple(proto.parents),
        features=conversion.feature_request_from_proto(proto.features) if proto.HasField("features") else None,
    )


def _decode_from_proto(proto: pb.Decode) -> Decode:
    return Decode(
        proto.sequence_id,
        proto.base_length,
        proto.num_tokens,
        proto.num_draft_tokens,
        conversion.feature_request_from_proto(proto.features) if proto.HasField("features") else None,
        conversion.tree_request_from_proto(proto.tree) if proto.HasField("tree") else None,
    )


def _verdict_to_proto(event: Verdict) -> pb.Verdict:
    return pb.Verdict(
        sequence_id=event.sequence_id,
        base_length=event.base_length,
        num_draft_tokens=event.num_draft_tokens,
        num_accepted_tokens=event.num_accepted_tokens,
        token_ids=event.token_ids,
        logprobs=[conversion.logprobs_to_proto(logprobs) for logprobs in event.logprobs],
        finish_reason=types_pb2.FinishReason.ValueType(event.finish_reason or 0),
        timings=conversion.timings_to_proto(event.timings),
        draft_depth=event.draft_depth,
        ended_in_leaf=event.ended_in_leaf,
        features=conversion.features_to_proto(event.features),
    )


def _verdict_from_proto(proto: pb.Verdict) -> Verdict:
    return Verdict(
        sequence_id=proto.sequence_id,
        base_length=proto.base_length,
        num_draft_tokens=proto.num_draft_tokens,
        num_accepted_tokens=proto.num_accepted_tokens,
        token_ids=tuple(proto.token_ids),
        logprobs=tuple(conversion.logprobs_from_proto(logprobs) for logprobs in proto.logprobs),
        finish_reason=conversion.finish_reason_from_proto(proto.finish_reason),
        timings=conversion.timings_from_proto(proto.timings),
        draft_depth=proto.draft_depth,
        ended_in_leaf=proto.ended_in_leaf,
        features=conversion.features_from_proto(proto.features) if proto.HasField("features") else None,
    )

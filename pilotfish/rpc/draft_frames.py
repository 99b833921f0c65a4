"""Frames of pilotfish.v1.Draft: commands and events <-> protos."""

from __future__ import annotations

from typing import assert_never

from pilotfish.errors import InvalidRequestError
from pilotfish.messages import (
    AheadRequest,
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
from pilotfish.rpc.v1 import draft_pb2 as pb


class DraftFrames(FrameCodec):
    """The FrameCodec of the draft stream."""

    service_name = "pilotfish.v1.Draft"
    request_frame_type = pb.DraftRequestFrame
    response_frame_type = pb.DraftResponseFrame

    def request(self, command: Command) -> pb.DraftRequest:
        match command:
            case Propose():
                return pb.DraftRequest(propose=_propose_to_proto(command))
            case OpenSequence():
                return pb.DraftRequest(open=conversion.open_to_proto(command))
            case CloseSequence():
                return pb.DraftRequest(close=conversion.close_to_proto(command))
            case Verify() | Decode():
                raise TypeError(f"a drafter takes no {type(command).__name__}")
            case _:
                assert_never(command)

    def command(self, request: pb.DraftRequest) -> Command:
        kind = request.WhichOneof("item")
        if kind == "propose":
            return _propose_from_proto(request.propose)
        if kind == "open":
            return conversion.open_from_proto(request.open)
        if kind == "close":
            return conversion.close_from_proto(request.close)
        raise InvalidRequestError("a request holds no item that this version knows")

    def response(self, event: Event) -> pb.DraftResponse | None:
        match event:
            case Proposal():
                return pb.DraftResponse(proposal=_proposal_to_proto(event))
            case SequenceError():
                return pb.DraftResponse(error=conversion.error_to_proto(event))
            case Opened() | Verdict():
                return None
            case _:
                assert_never(event)

    def event(self, response: pb.DraftResponse) -> Event:
        kind = response.WhichOneof("item")
        if kind == "proposal":
            return _proposal_from_proto(response.proposal)
        if kind == "error":
            return conversion.error_from_proto(response.error)
        raise InvalidRequestError("a response holds no item that this version knows")


def _propose_to_proto(command: Propose) -> pb.Propose:
    return pb.Propose(
        sequence_id=command.sequence_id,
        base_length=command.base_length,
        new_token_ids=command.new_token_ids,
        num_draft_tokens=command.num_draft_tokens,
        features=conversion.features_to_proto(command.features),
        tree=conversion.tree_request_to_proto(command.tree),
        ahead=_ahead_to_proto(command.ahead),
        is_prepared=command.is_prepared,
    )


def _propose_from_proto(proto: pb.Propose) -> Propose:
    return Propose(
        proto.sequence_id,
        proto.base_length,
        tuple(proto.new_token_ids),
        proto.num_draft_tokens,
        conversion.features_from_proto(proto.features) if proto.HasField("features") else None,
        conversion.tree_request_from_proto(proto.tree) if proto.HasField("tree") else None,
        AheadRequest(proto.ahead.max_tokens, tuple(proto.ahead.acceptance)) if proto.HasField("ahead") else None,
        proto.is_prepared,
    )


def _ahead_to_proto(request: AheadRequest | None) -> pb.AheadRequest | None:
    return None if request is None else pb.AheadRequest(max_tokens=request.max_tokens, acceptance=request.acceptance)


def _proposal_to_proto(event: Proposal) -> pb.Proposal:
    return pb.Proposal(
        sequence_id=event.sequence_id,
        base_length=event.base_length,
        draft_token_ids=event.draft_token_ids,
        draft_probs=[conversion.distribution_to_proto(probs) for probs in event.draft_probs],
        timings=conversion.timings_to_proto(event.timings),
        parents=event.parents,
        assumed_token_ids=event.assumed_token_ids,
    )


def _proposal_from_proto(proto: pb.Proposal) -> Proposal:
    return Proposal(
        sequence_id=proto.sequence_id,
        base_length=proto.base_length,
        draft_token_ids=tuple(proto.draft_token_ids),
        draft_probs=tuple(conversion.distribution_from_proto(probs) for probs in proto.draft_probs),
        timings=conversion.timings_from_proto(proto.timings),
        parents=tuple(proto.parents),
        assumed_token_ids=tuple(proto.assumed_token_ids),
    )

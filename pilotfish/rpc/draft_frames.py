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
    PreparedDrafts,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.rpc import conversion
from pilotfish.rpc.frames import FrameCodec
from pilotfish.rpc.v1 import draft_pb2 as pb
from pilotfish.types import NO_TIMINGS


class DraftFrames(FrameCodec):
    """The FrameCodec of the draft stream."""

    service_name = "pilotfish.v1.Draft"
    service = "draft"
    request_frame_type = pb.DraftRequestFrame
    response_frame_type = pb.DraftResponseFrame

    def fill_request(self, request: pb.DraftRequest, command: Command) -> None:
        match command:
            case Propose():
                _fill_propose(request.propose, command)
            case OpenSequence():
                request.open.CopyFrom(conversion.open_to_proto(command))
            case CloseSequence():
                request.close.sequence_id = command.sequence_id
            case Verify() | Decode():
                raise TypeError(f"a drafter takes no {type(command).__name__}")
            case _:
                assert_never(command)

    def command(self, request: pb.DraftRequest, sequence_id: int) -> Command:
        kind = request.WhichOneof("item")
        if kind == "propose":
            return _propose_from_proto(request.propose, sequence_id)
        if kind == "open":
            return conversion.open_from_proto(request.open, sequence_id)
        if kind == "close":
            return CloseSequence(sequence_id)
        raise InvalidRequestError("a request holds no item that this version knows")

    def carries(self, event: Event) -> bool:
        return isinstance(event, Proposal | PreparedDrafts | SequenceError)

    def fill_response(self, response: pb.DraftResponse, event: Event, sequence_id: int) -> None:
        match event:
            case Proposal():
                _fill_proposal(response.proposal, event, sequence_id)
            case PreparedDrafts():
                _fill_prepared(response.prepared, event, sequence_id)
            case SequenceError():
                response.error.CopyFrom(conversion.error_to_proto(event, sequence_id))
            case Opened() | Verdict():
                raise TypeError(f"the draft stream carries no {type(event).__name__}")
            case _:
                assert_never(event)

    def event(self, response: pb.DraftResponse) -> Event:
        kind = response.WhichOneof("item")
        if kind == "proposal":
            return _proposal_from_proto(response.proposal)
        if kind == "prepared":
            return _prepared_from_proto(response.prepared)
        if kind == "error":
            return conversion.error_from_proto(response.error)
        raise InvalidRequestError("a response holds no item that this version knows")


def _fill_propose(proto: pb.Propose, command: Propose) -> None:
    proto.sequence_id = command.sequence_id
    proto.base_length = command.base_length
    proto.new_token_ids.extend(command.new_token_ids)
    proto.num_draft_tokens = command.num_draft_tokens
    if command.features is not None:
        proto.features.CopyFrom(conversion.features_to_proto(command.features))
    if command.tree is not None:
        proto.tree.CopyFrom(conversion.tree_request_to_proto(command.tree))
    if command.ahead is not None:
        proto.ahead.max_tokens = command.ahead.max_tokens
        proto.ahead.acceptance.extend(command.ahead.acceptance)
    if command.is_prepared:
        proto.is_prepared = True


def _propose_from_proto(proto: pb.Propose, sequence_id: int) -> Propose:
    return Propose(
        sequence_id,
        proto.base_length,
        tuple(proto.new_token_ids[:]),  # a slice: iterating takes three times as long
        proto.num_draft_tokens,
        conversion.features_from_proto(proto.features) if proto.HasField("features") else None,
        conversion.tree_request_from_proto(proto.tree) if proto.HasField("tree") else None,
        AheadRequest(proto.ahead.max_tokens, tuple(proto.ahead.acceptance)) if proto.HasField("ahead") else None,
        proto.is_prepared,
    )


def _fill_proposal(proto: pb.Proposal, event: Proposal, sequence_id: int) -> None:
    proto.sequence_id = sequence_id
    proto.base_length = event.base_length
    proto.draft_token_ids.extend(event.draft_token_ids)
    if event.draft_probs:
        proto.draft_probs.extend(map(conversion.distribution_to_proto, event.draft_probs))
    if event.parents:
        proto.parents.extend(event.parents)
    if event.timings != NO_TIMINGS:
        conversion.fill_timings(proto.timings, event.timings)


def _proposal_from_proto(proto: pb.Proposal) -> Proposal:
    return Proposal(
        proto.sequence_id,
        proto.base_length,
        tuple(proto.draft_token_ids[:]),
        tuple(map(conversion.distribution_from_proto, proto.draft_probs[:])),
        conversion.timings_from_proto(proto.timings) if proto.HasField("timings") else NO_TIMINGS,
        tuple(proto.parents[:]),
    )


def _fill_prepared(proto: pb.PreparedDrafts, event: PreparedDrafts, sequence_id: int) -> None:
    proto.sequence_id = sequence_id
    proto.base_length = event.base_length
    proto.verified_token_ids.extend(event.verified_token_ids)
    proto.num_accepted_tokens.extend(event.num_accepted_tokens)
    proto.own_token_ids.extend(event.own_token_ids)
    proto.draft_token_ids.extend(event.draft_token_ids)
    if event.draft_probs:
        proto.draft_probs.extend(map(conversion.distribution_to_proto, event.draft_probs))


def _prepared_from_proto(proto: pb.PreparedDrafts) -> PreparedDrafts:
    num_outcomes = len(proto.own_token_ids)
    if num_outcomes == 0 or len(proto.num_accepted_tokens) != num_outcomes or len(proto.draft_token_ids) % num_outcomes:
        raise InvalidRequestError("drafts made ahead do not fit their outcomes")
    return PreparedDrafts(
        proto.sequence_id,
        proto.base_length,
        tuple(proto.verified_token_ids[:]),
        tuple(proto.num_accepted_tokens[:]),
        tuple(proto.own_token_ids[:]),
        tuple(proto.draft_token_ids[:]),
        tuple(map(conversion.distribution_from_proto, proto.draft_probs[:])),
    )

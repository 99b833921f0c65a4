"""Frames of pilotfish.v1.Draft: commands and events <-> protos."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from pilotfish.messages import (
    CloseSequence,
    OpenSequence,
    Predrafted,
    PredraftRequest,
    Proposal,
    Propose,
    SequenceError,
)
from pilotfish.rpc import conversion
from pilotfish.rpc.frames import CLOSE, ERROR, OPEN, FrameCodec, Item
from pilotfish.rpc.v1 import draft_pb2 as pb
from pilotfish.types import NO_TIMINGS, TreeRequest


def _fill_propose(proto: pb.Propose, command: Propose) -> None:
    proto.sequence_id = command.sequence_id
    proto.base_length = command.base_length
    proto.new_token_ids.extend(command.new_token_ids)
    proto.num_draft_tokens = command.num_draft_tokens
    if command.features is not None:
        proto.features.CopyFrom(conversion.features_to_proto(command.features))
    if command.tree is not None and command.tree.row_price:
        proto.priced_tree.CopyFrom(pb.PricedTree(**msgspec.structs.asdict(command.tree)))
    elif command.tree is not None:
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
        _tree_from_proto(proto),
        PredraftRequest(proto.ahead.max_tokens, tuple(proto.ahead.acceptance)) if proto.HasField("ahead") else None,
        proto.is_prepared,
    )


def _tree_from_proto(proto: pb.Propose) -> TreeRequest | None:
    if proto.HasField("priced_tree"):
        return TreeRequest(**conversion.values_of(proto.priced_tree, TreeRequest))
    return conversion.tree_request_from_proto(proto.tree) if proto.HasField("tree") else None


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
    if event.drafter_version:
        proto.drafter_version = event.drafter_version


def _proposal_from_proto(proto: pb.Proposal) -> Proposal:
    return Proposal(
        proto.sequence_id,
        proto.base_length,
        tuple(proto.draft_token_ids[:]),
        tuple(map(conversion.distribution_from_proto, proto.draft_probs[:])),
        conversion.timings_from_proto(proto.timings) if proto.HasField("timings") else NO_TIMINGS,
        tuple(proto.parents[:]),
        proto.drafter_version,
    )


class DraftFrames(FrameCodec):
    """The FrameCodec of the draft stream."""

    service_name = "pilotfish.v1.Draft"
    service = "draft"
    request_frame_type = pb.DraftRequestFrame
    response_frame_type = pb.DraftResponseFrame
    requests = MappingProxyType(
        {Propose: Item("propose", _fill_propose, _propose_from_proto), OpenSequence: OPEN, CloseSequence: CLOSE}
    )
    responses = MappingProxyType(
        {
            Proposal: Item("proposal", _fill_proposal, _proposal_from_proto),
            Predrafted: Item("prepared", conversion.fill_prepared, conversion.prepared_from_proto),
            SequenceError: ERROR,
        }
    )

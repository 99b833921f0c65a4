"""An answer's summary on the wire."""

import dataclasses

import pytest

from pilotfish.rpc.answer import chunk_from_proto, summary_from_proto, summary_to_proto
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.types import TokenOrigin
from tests.support.summaries import make_summary


@pytest.mark.parametrize("stopped_by", ["", "2", 2, 0])
def test_a_token_that_ended_an_answer_is_told_from_a_string(stopped_by: str | int) -> None:
    sent = make_summary(stopped_by=stopped_by)
    message = summary_to_proto(sent).summary
    assert summary_from_proto(message) == sent
    assert message.stopped_by == str(stopped_by), "as older clients know it"
    message.ClearField("stop_token_id")
    assert summary_from_proto(message) == dataclasses.replace(sent, stopped_by=str(stopped_by))


def test_an_origin_that_a_newer_service_knows_ends_no_answer() -> None:
    chunk = chunk_from_proto(pb.Chunk(text="ab", token_ids=[1, 2], origins=[2, 99]))  # type: ignore[list-item]
    assert chunk.origins == (TokenOrigin.ACCEPTED, TokenOrigin.PLAIN)

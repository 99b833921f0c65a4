"""An answer's summary on the wire."""

import dataclasses

import pytest

from pilotfish.rpc.answer import summary_from_proto, summary_to_proto
from tests.support.summaries import make_summary


@pytest.mark.parametrize("stopped_by", ["", "2", 2, 0])
def test_a_token_that_ended_an_answer_is_told_from_a_string(stopped_by: str | int) -> None:
    sent = make_summary(stopped_by=stopped_by)
    message = summary_to_proto(sent).summary
    assert summary_from_proto(message) == sent
    assert message.stopped_by == str(stopped_by), "as older clients know it"
    message.ClearField("stop_token_id")
    assert summary_from_proto(message) == dataclasses.replace(sent, stopped_by=str(stopped_by))

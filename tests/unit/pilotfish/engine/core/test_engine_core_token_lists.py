"""What a request lists by token is gone through when its sequence is opened, and not in its steps."""

from collections.abc import Iterator
from typing import Any

import pytest

from pilotfish.messages import Decode, OpenSequence, Propose, Verify
from pilotfish.types import AcceptanceMode, SamplingParams
from tests.support.engine_events import MakeCore, settle, text_of

PROMPT = (1, 5, 9, 2, 33, 7)
NUM_TOKENS = 20


class CountedTuple(tuple[Any, ...]):
    """Counts how often it is gone through."""

    num_readings = 0

    def __iter__(self) -> Iterator[Any]:
        self.num_readings += 1
        return super().__iter__()

    def __contains__(self, item: object) -> bool:
        self.num_readings += 1
        return super().__contains__(item)


@pytest.mark.parametrize("changes", [{"temperature": 0}, {}, {"acceptance": AcceptanceMode.REJECTION}], ids=str)
@pytest.mark.parametrize("kind", ["logit_bias", "stop_token_ids", "bad_words", "allowed_token_ids"])
def test_lists_of_tokens_are_read_once(make_core: MakeCore, kind: str, changes: dict[str, Any]) -> None:
    lists = {
        "logit_bias": [(token_id, 0.5) for token_id in range(40, 60)],
        "stop_token_ids": range(64, 90),
        "bad_words": [(3,), (4, 5)],
        "allowed_token_ids": range(60),
    }
    listed = CountedTuple(lists[kind])
    sampling = SamplingParams(min_tokens=5, **{kind: listed}, **changes)
    target, drafter = make_core(), make_core()
    for core in (target, drafter):
        core.submit(OpenSequence(1, PROMPT, sampling))
    num_readings = listed.num_readings
    assert num_readings > 0
    target.submit(Decode(1, len(PROMPT), NUM_TOKENS))
    output = text_of(settle(target))
    assert len(output) == NUM_TOKENS
    drafter.submit(Propose(1, len(PROMPT), (), 8))
    (proposal,) = (event for event in settle(drafter) if hasattr(event, "draft_probs"))
    if changes.get("acceptance") is not AcceptanceMode.REJECTION:
        assert list(proposal.draft_token_ids) == output[:8], "the drafter knows the lists as well"
    target.submit(Verify(1, len(PROMPT) + NUM_TOKENS, proposal.draft_token_ids, proposal.draft_probs))
    settle(target)
    assert listed.num_readings == num_readings
    if kind == "allowed_token_ids":
        assert max(output) < 60

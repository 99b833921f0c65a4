"""Steps survive the way to the other ranks."""

from __future__ import annotations

from pilotfish.models.attention import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.parallel.messages import encoder, order_decoder
from pilotfish.parallel.step_codec import step_from_message, step_to_message
from pilotfish.speculation.trees import DraftTree


def test_a_step_arrives_as_it_was() -> None:
    tree = DraftTree((-1, -1, 1))
    step = StepInput(
        token_ids=[3, 128_255, 7, 9, 11],
        positions=[30, 131_071, 31, 31, 32],
        slices=[SequenceSlice(0, 1, 30, [4, 2]), SequenceSlice(1, 4, 40, [9, 8, 7], tree)],
        logit_rows=[0, 1, 2, 3, 4],
        exit_layer=3,
    )
    message = order_decoder.decode(encoder.encode(step_to_message(step)))
    assert step_from_message(message) == step  # type: ignore[arg-type]


def test_blocks_behind_the_last_row_stay_at_home() -> None:
    step = StepInput([1, 2], range(15, 17), [SequenceSlice(0, 2, 15, [5, 6, 7, 8])], range(1, 2))
    arrived = step_from_message(step_to_message(step))
    assert list(arrived.slices[0].block_ids) == [5, 6]
    assert (arrived.positions, arrived.logit_rows, arrived.exit_layer) == ([15, 16], [1], None)

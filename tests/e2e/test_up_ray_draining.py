"""SIGTERM to `pilotfish serve --ray` while an answer is made: all replicas are told at once, and it is finished."""

import signal
from collections.abc import Callable

import pytest

from pilotfish.client.answer import Chunk, GenerateOptions, Summary
from pilotfish.client.inference import InferenceClient

pytestmark = [pytest.mark.model, pytest.mark.ray]

NUM_TOKENS = 125
"""At 80 ms each: 10 s."""


def test_an_answer_under_way_is_finished(start_up: Callable) -> None:
    up = start_up("--ray", "--emulate", "a100-70b", "--set", "emulation.time_scale=10")
    options = GenerateOptions(max_tokens=NUM_TOKENS, ignore_eos=True, speculation="off")
    with InferenceClient(up.address) as client:
        answer = client.generate("sea", options, timeout_s=60)
        assert isinstance(next(answer), Chunk)
        up.send(signal.SIGTERM)
        *_, summary = answer
    assert isinstance(summary, Summary)
    assert summary.num_output_tokens == NUM_TOKENS
    assert up.wait() == 0
    assert up.lines[-1] == "stopped"
    assert not up.left()

"""The measured table: exact on its points, bilinear between, clamped before, sloped past the end."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.emulation.profiles import MeasuredCost
from pilotfish.errors import ConfigError

COST = MeasuredCost(
    num_sequences=(1, 5),
    num_tokens=(1, 11, 21),
    step_times_s=((1.0, 2.0, 4.0), (2.0, 3.0, 5.0)),
    context_token_s=0.001,
)


@pytest.mark.parametrize(("line", "num_sequences"), [(0, 1), (1, 5)])
@pytest.mark.parametrize(("column", "num_tokens"), [(0, 1), (1, 11), (2, 21)])
def test_its_points_are_exact(line: int, num_sequences: int, column: int, num_tokens: int) -> None:
    assert COST.step_s(num_sequences, num_tokens) == COST.step_times_s[line][column]


def test_between_its_points_it_is_bilinear() -> None:
    assert COST.step_s(1, 6) == pytest.approx(1.5)
    assert COST.step_s(3, 11) == pytest.approx(2.5)
    assert COST.step_s(3, 16) == pytest.approx(3.5)


def test_past_its_last_point_the_slope_goes_on() -> None:
    assert COST.step_s(1, 31) == pytest.approx(6.0)
    assert COST.step_s(9, 11) == pytest.approx(4.0)


def test_a_falling_end_is_noise_and_does_not_go_on() -> None:
    cost = MeasuredCost(num_sequences=(1,), num_tokens=(1, 2), step_times_s=((2.0, 1.0),))
    assert cost.step_s(1, 100) == 1.0


@given(st.integers(1, 40), st.integers(1, 99), st.integers(1, 40), st.integers(1, 99))
def test_larger_steps_are_never_shorter(sequences: int, tokens: int, more_sequences: int, more_tokens: int) -> None:
    larger = COST.step_s(sequences + more_sequences, tokens + more_tokens)
    assert larger >= COST.step_s(sequences, tokens) - 1e-9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_sequences": ()}, "num_sequences"),
        ({"num_tokens": (2, 1, 3)}, "num_tokens"),
        ({"step_times_s": ((1.0, 2.0, 3.0),)}, "a line for each"),
        ({"step_times_s": ((1.0, 2.0), (1.0, 2.0))}, "a line for each"),
        ({"step_times_s": ((1.0, 2.0, -3.0), (1.0, 2.0, 3.0))}, "at least 0"),
        ({"context_token_s": -1.0}, "at least 0"),
    ],
)
def test_what_is_no_table_is_refused(values: dict[str, Any], message: str) -> None:
    sound: dict[str, Any] = {"num_sequences": (1, 2), "num_tokens": (1, 2, 3), "step_times_s": ((1.0, 2.0, 3.0),) * 2}
    with pytest.raises(ConfigError, match=message):
        MeasuredCost(**(sound | values))

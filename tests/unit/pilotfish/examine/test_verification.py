"""Steps by sequences and rows, of a target whose times are known."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from pilotfish.emulation.cost_measurement import ShapeTimes
from pilotfish.errors import ConfigError
from pilotfish.examine.verification import measure_verification


class KnownTimes(ShapeTimes):
    """A step takes 10 s, 1 s more for each row and 2 s more for each sequence; the first ones take twice as long, as
    somebody else computes as well."""

    def __init__(self, max_tokens: int = 1 << 20, num_busy: int = 10) -> None:
        self._max_tokens = max_tokens
        self._num_busy = num_busy

    @contextmanager
    def opened(self, num_sequences: int, context_tokens: int, *, is_shared: bool = False) -> Iterator[list[int]]:
        assert not is_shared, "each has keys and values of its own"
        if num_sequences * context_tokens > self._max_tokens:
            raise ConfigError("the KV cache is full")
        yield list(range(num_sequences))

    def verify_s(self, sequences: Sequence[int], rows_each: int) -> float:
        self._num_busy -= 1
        return (2 if self._num_busy >= 0 else 1) * known_s(len(sequences), len(sequences) * rows_each)


def known_s(num_sequences: int, num_rows: int) -> float:
    return 10.0 + num_rows + 2 * num_sequences


def test_steps_are_told_by_sequences_and_by_rows() -> None:
    steps = measure_verification(KnownTimes(), (1, 4, 8), 64, max_rows=512, num_draft_tokens=8)
    for num_sequences, num_rows in [(1, 1), (1, 5), (4, 4), (4, 6), (8, 8), (8, 31), (6, 12)]:
        assert steps.step_s(num_sequences, num_rows) == pytest.approx(known_s(num_sequences, num_rows))


def test_steps_that_have_no_room_are_not_tried() -> None:
    steps = measure_verification(KnownTimes(), (1, 4), 64, max_rows=8, num_draft_tokens=2)
    assert steps.num_tokens == (1, 2, 3, 4, 8)


def test_where_a_larger_step_took_less_the_smaller_one_was_disturbed() -> None:
    steps = measure_verification(KnownTimes(num_busy=2), (1, 4), 64, max_rows=8, num_draft_tokens=2)
    assert steps.step_s(1, 1) == pytest.approx(known_s(1, 1))

    class Disturbed(KnownTimes):
        def verify_s(self, sequences: Sequence[int], rows_each: int) -> float:
            return 3 * super().verify_s(sequences, rows_each) if len(sequences) == 1 else known_s(4, 4 * rows_each)

    assert measure_verification(Disturbed(), (1, 4), 64, 8, 1).step_s(1, 1) == pytest.approx(known_s(4, 4))


def test_loads_end_where_the_cache_is_full() -> None:
    assert measure_verification(KnownTimes(400), (1, 4, 8), 64, 512, 4).num_sequences == (1, 4)
    assert measure_verification(KnownTimes(), (1, 4, 8), 64, 4, 4).num_sequences == (1, 4)
    with pytest.raises(ConfigError, match="full"):
        measure_verification(KnownTimes(10), (1,), 64, 512, 4)

import pytest

from pilotfish.errors import ConfigError
from tests.support.conditions import Conditions, DelayLine


def departures(conditions: Conditions, num_pieces: int = 200, num_bytes: int = 100, seed: int = 3) -> list[float]:
    """Of pieces that arrive every millisecond."""
    line = DelayLine(seed)
    return [line.departure_s(conditions, num_bytes, index / 1000) - index / 1000 for index in range(num_pieces)]


def test_a_wire_that_does_nothing_lets_bytes_leave_at_once() -> None:
    assert set(departures(Conditions())) == {0.0}


def test_every_piece_is_delayed_alike() -> None:
    assert departures(Conditions(delay_ms=2)) == pytest.approx([0.002] * 200)


def test_jitter_is_added_within_its_bound_and_differs() -> None:
    delays = departures(Conditions(delay_ms=2, jitter_ms=0.5))
    assert 0.002 <= min(delays) < max(delays) <= 0.0025
    assert len({round(delay, 6) for delay in delays}) > 100
    assert delays == departures(Conditions(delay_ms=2, jitter_ms=0.5))
    assert delays != departures(Conditions(delay_ms=2, jitter_ms=0.5), seed=4)


def test_pieces_never_overtake_each_other() -> None:
    delays = departures(Conditions(jitter_ms=50, loss=0.1))
    times = [index / 1000 + delay for index, delay in enumerate(delays)]
    assert times == sorted(times)


def test_a_lost_piece_holds_up_what_follows() -> None:
    delays = departures(Conditions(loss=0.02))
    assert max(delays) == pytest.approx(0.2)
    first = delays.index(max(delays))
    assert delays[first + 1] == pytest.approx(0.199)
    assert delays[0] == 0


def test_bandwidth_spaces_pieces_out() -> None:
    # 100 bytes at 50 kB/s take 2 ms and come every millisecond.
    delays = departures(Conditions(bandwidth_bytes_per_s=50_000), num_pieces=5)
    assert delays == pytest.approx([0.002, 0.003, 0.004, 0.005, 0.006])


def test_words_are_read_and_written() -> None:
    conditions = Conditions(delay_ms=2.5, frozen=True, close_after_bytes=10)
    assert conditions.format() == "delay_ms=2.5 frozen=1 close_after_bytes=10"
    assert Conditions.parse(conditions.format()) == conditions
    assert Conditions.parse("frozen") == Conditions(frozen=True)
    assert Conditions.parse("") == Conditions()


@pytest.mark.parametrize("text", ["colour=red", "delay_ms=soon", "delay_ms=-1", "loss=1"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Conditions.parse(text)

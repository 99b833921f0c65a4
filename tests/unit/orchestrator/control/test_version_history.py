"""Acceptance by minute and version."""

from orchestrator.control.version_history import VersionHistory


def test_rounds_are_summed_by_minute_and_version() -> None:
    history = VersionHistory()
    rounds = [(0, 2, 5.0), (0, 4, 59.0), (0, 1, 61.0), (3, 5, 62.0), (3, 3, 63.0)]
    swaps = [history.add(version, num_accepted, now_s) for version, num_accepted, now_s in rounds]
    assert swaps == [False, False, False, True, False]
    points = [(point.begin_s, point.version, point.num_rounds, point.acceptance_length) for point in history.points]
    assert points == [(5.0, 0, 2, 4.0), (61.0, 0, 1, 2.0), (62.0, 3, 2, 5.0)]
    assert history.acceptance_lengths(5) == {0: 1 + 7 / 3, 3: 5.0}


def test_replicas_that_swap_one_after_the_other_are_one_swap() -> None:
    history = VersionHistory()
    swaps = [history.add(version, 2, second) for second in range(50) for version in (0, 1)]
    assert swaps.count(True) == 1
    assert [(point.version, point.num_rounds) for point in history.points] == [(0, 50), (1, 50)]
    assert [history.add(version, 2, 61.0) for version in (1, 0, 1)] == [False] * 3


def test_a_version_that_comes_back_is_another() -> None:
    history = VersionHistory()
    rounds = [(0, 0.0), (1, 60.0), (1, 120.0), (0, 180.0)]
    assert [history.add(version, 2, now_s) for version, now_s in rounds] == [False, True, False, True]


def test_what_is_remembered_is_bounded() -> None:
    history = VersionHistory()
    for version in range(500):
        assert history.add(version, 1, version) == (version > 0)
    assert len(history.points) == 120
    assert list(history.acceptance_lengths(5)) == [495, 496, 497, 498, 499]


def test_a_drafter_that_never_drafted_has_no_acceptance() -> None:
    assert VersionHistory().acceptance_lengths(5) == {}

from orchestrator.control.recent_peak import RecentPeak


def test_it_rises_at_once_and_falls_after_one_to_two_windows() -> None:
    peak = RecentPeak(1.0)
    assert peak.at(0.0) == 0
    values = []
    for now_s, value in ((0.0, 3), (0.5, 8), (0.9, 2), (1.5, 2), (2.4, 1), (2.6, 1)):
        peak.add(value, now_s)
        values.append(peak.at(now_s))
    assert values == [3, 8, 8, 8, 8, 2]


def test_after_a_silence_nothing_is_remembered() -> None:
    peak = RecentPeak(1.0)
    peak.add(8, 0.0)
    peak.add(1, 5.0)
    assert peak.at(5.0) == 1


def test_it_falls_though_nothing_is_added() -> None:
    peak = RecentPeak(1.0)
    peak.add(8, 0.0)
    peak.add(3, 1.0)
    assert [peak.at(now_s) for now_s in (1.9, 2.0, 2.9, 3.0)] == [8, 3, 3, 0]

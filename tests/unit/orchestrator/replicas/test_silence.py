from orchestrator.replicas.circuit import SilenceWatch


def is_over_at(watch: SilenceWatch, moments: list[float]) -> list[bool]:
    return [watch.is_over(moment) for moment in moments]


def test_a_replica_that_says_nothing_for_the_timeout_is_lost() -> None:
    watch = SilenceWatch(4.0, 0.0)
    assert is_over_at(watch, [1.0, 2.0, 3.0, 4.0]) == [False] * 4
    assert watch.is_over(5.0)


def test_a_process_that_stood_still_blames_nobody_else() -> None:
    watch = SilenceWatch(4.0, 0.0)
    assert watch.check_interval_s == 1.0
    assert not watch.is_over(60.0)
    assert is_over_at(watch, [61.0, 62.0, 63.0, 64.0]) == [False] * 4
    assert watch.is_over(65.0)

from orchestrator.replicas.circuit import Circuit


def test_a_circuit_opens_after_three_failures_in_a_row() -> None:
    circuit = Circuit()
    assert [circuit.failed(0.0), circuit.failed(0.1), circuit.failed(0.2)] == [False, False, True]
    assert not circuit.allows(0.6)
    assert circuit.allows(0.7)


def test_a_success_between_failures_starts_the_count_again() -> None:
    circuit = Circuit()
    circuit.failed(0.0)
    circuit.failed(0.1)
    assert circuit.succeeded() is False
    assert circuit.failed(0.2) is False
    assert circuit.allows(0.2)


def test_failures_of_one_moment_count_once() -> None:
    circuit = Circuit()
    assert not any(circuit.failed(moment / 1000) for moment in range(50))
    assert circuit.allows(0.05)


def test_a_failed_trial_doubles_the_pause_up_to_the_limit() -> None:
    circuit = Circuit()
    now_s, pauses = 0.0, []
    circuit.failed(-2.0)
    circuit.failed(-1.0)
    for _ in range(9):
        assert circuit.failed(now_s) is True
        start_s = now_s
        while not circuit.allows(now_s):
            now_s += 0.5
        pauses.append(now_s - start_s)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def opened_at(now_s: float) -> Circuit:
    circuit = Circuit()
    for failed_s in (now_s - 2, now_s - 1, now_s):
        circuit.failed(failed_s)
    return circuit


def test_a_trial_that_tells_nothing_makes_way_for_another() -> None:
    circuit = opened_at(0.0)
    circuit.begin_trial(0.5)
    circuit.end_trial()
    assert circuit.allows(0.5)
    circuit.begin_trial(0.5)
    assert circuit.allows(5.5)


def test_a_failed_trial_opens_the_circuit_for_longer_and_a_success_closes_it() -> None:
    circuit = opened_at(0.0)
    circuit.begin_trial(0.5)
    assert circuit.failed(0.6) is True
    assert not circuit.allows(1.5)
    assert circuit.allows(1.6)
    circuit.begin_trial(1.6)
    assert circuit.succeeded() is True
    assert circuit.is_closed
    assert circuit.allows(1.6)


def test_failures_of_rounds_that_began_before_do_not_prolong_the_pause() -> None:
    circuit = opened_at(0.0)
    assert circuit.failed(0.3) is False
    assert circuit.allows(0.5)

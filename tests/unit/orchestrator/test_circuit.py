from orchestrator.circuit import Circuit


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


def test_a_success_closes_an_open_circuit_and_says_so_once() -> None:
    circuit = Circuit()
    for second in range(3):
        circuit.failed(second)
    assert circuit.succeeded() is True
    assert circuit.allows(2.0)
    assert circuit.succeeded() is False

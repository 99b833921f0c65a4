from orchestrator.control.gate import Gate


def update(
    gate: Gate,
    gain: float,
    num_sequences: int = 4,
    is_measured: bool = True,
    num_own: int | None = None,
    is_retry: bool = False,
) -> bool:
    return gate.update(gain, num_sequences, num_own or num_sequences, is_measured=is_measured, is_retry=is_retry)


def closed() -> Gate:
    """Under the load of four sequences, from the start; it has waited."""
    gate = Gate()
    update(gate, 0.9)
    gate.count_plain_tokens(128, gate.state_number)
    return gate


def updates_until_open(gate: Gate, gain: float, **values: int) -> int:
    return next(number for number in range(1, 1000) if update(gate, gain, **values))


def rounds(gate: Gate, num_rounds: int) -> None:
    for _ in range(num_rounds):
        gate.count_round()


def test_it_begins_as_the_first_gain_says() -> None:
    assert update(Gate(), 1.01)
    assert not update(Gate(), 0.99)


def test_it_closes_only_when_every_sequence_has_measured() -> None:
    gate = Gate()
    update(gate, 1.5)
    rounds(gate, 15)
    assert update(gate, 0.9)
    rounds(gate, 1)
    assert not update(gate, 0.9)
    assert gate.num_switches == 1


def test_a_clear_loss_closes_it_sooner() -> None:
    gate = Gate()
    update(gate, 1.5)
    rounds(gate, 8)
    assert update(gate, 0.9)
    assert not update(gate, 0.7)


def test_it_closes_where_most_went_off_by_themselves() -> None:
    gate = Gate()
    update(gate, 1.5)
    gate.count_plain_tokens(128, gate.state_number)
    assert not update(gate, 0.9)


def test_only_what_is_counted_here_is_waited_for() -> None:
    gate = Gate()
    update(gate, 1.5, 64, num_own=2)
    rounds(gate, 8)
    assert not update(gate, 0.9, 64, num_own=2)
    gate.count_plain_tokens(64, gate.state_number)
    assert update(gate, 1.5, 64, num_own=2)


def test_a_small_difference_switches_nothing() -> None:
    gate = Gate()
    update(gate, 1.5)
    rounds(gate, 100)
    assert all(update(gate, gain) for gain in (0.985, 1.0, 0.99))
    assert update(gate, 0.96), "for a moment"
    assert not all(update(gate, 0.96) for _ in range(100))
    gate.count_plain_tokens(10_000, gate.state_number)
    assert not any(update(gate, gain) for gain in (1.015, 1.0) * 50)
    assert not any(update(gate, 1.04, is_measured=False) for _ in range(100))
    assert update(gate, 1.04)


def test_a_bad_moment_is_sat_out_and_a_lasting_loss_is_not() -> None:
    gate = Gate()
    update(gate, 1.16)
    rounds(gate, 100)
    for _ in range(5):
        assert all(update(gate, 1.16) for _ in range(60))
        assert all(update(gate, 0.94) for _ in range(20))
    assert not all(update(gate, 0.94) for _ in range(60))


def test_a_good_moment_opens_nothing_and_a_lasting_gain_does() -> None:
    gate = closed()
    assert not any(update(gate, gain) for gain in (0.88, 0.9, 1.1, 0.92, 1.05, 0.9) * 10)
    assert 5 < updates_until_open(gate, 1.1) < 20


def test_a_good_moment_opens_nothing_at_first_either_unless_it_is_clear() -> None:
    gate = closed()
    assert not any(update(gate, gain) for gain in (1.1, 0.9, 0.9, 0.9, 1.2, 0.9))
    assert updates_until_open(closed(), 1.1) == 3
    assert updates_until_open(closed(), 1.2) == 2
    assert updates_until_open(closed(), 1.25) == 1


def test_a_load_that_was_never_measured_has_to_promise_more_and_for_as_long() -> None:
    assert updates_until_open(closed(), 1.1) < updates_until_open(closed(), 1.1, is_measured=False) < 20


def test_another_try_does_not_wait_until_what_was_believed_before_is_outweighed() -> None:
    gate = closed()
    for _ in range(500):
        update(gate, 0.8)
    assert not update(gate, 1.1)
    assert not update(gate, 1.04, is_measured=False, is_retry=True)
    assert update(gate, 1.1, is_measured=False, is_retry=True)


def test_it_does_not_go_on_before_those_who_came_have_waited() -> None:
    gate = Gate()
    update(gate, 0.9, 64, num_own=2)
    gate.count_plain_tokens(64, gate.state_number)
    for _ in range(20):
        update(gate, 1.03, 64, num_own=2, is_measured=False)
    assert not update(gate, 1.03, 64, num_own=20)
    assert update(gate, 1.03, 64, num_own=2)


def test_another_load_forgets_what_was_gained_under_the_last_one() -> None:
    gate = closed()
    for _ in range(100):
        update(gate, 0.8)
    assert not update(gate, 0.9, 8)
    gate.count_plain_tokens(256, gate.state_number)
    assert updates_until_open(gate, 1.1, num_sequences=8) == 3


def test_what_was_closed_under_another_load_says_nothing() -> None:
    gate = closed()
    assert gate.is_closed_under(4)
    assert not gate.is_closed_under(1)
    assert not gate.is_closed_under(8)
    assert not Gate().is_closed_under(1), "it was never decided"
    update(gate, 1.5)
    assert not gate.is_closed_under(4)


def test_it_opens_again_after_a_while() -> None:
    gate = Gate()
    update(gate, 0.5)
    gate.count_plain_tokens(100, gate.state_number)
    assert not update(gate, 1.5)
    gate.count_plain_tokens(28, gate.state_number)
    assert update(gate, 1.5)


def test_runs_of_before_a_switch_say_nothing_of_what_follows_it() -> None:
    gate = Gate()
    update(gate, 0.5)
    before = gate.state_number
    gate.count_plain_tokens(128, before)
    assert update(gate, 1.5)
    gate.count_plain_tokens(1000, before)
    assert update(gate, 0.9)
    gate.count_plain_tokens(128, gate.state_number)
    assert not update(gate, 0.9)


def test_a_new_load_is_decided_at_once() -> None:
    gate = Gate()
    update(gate, 1.5, 1)
    assert not update(gate, 0.9, 64)
    assert not update(gate, 1.5, 60), "about the same load"
    assert update(gate, 1.5, 1)
    assert gate.num_switches == 2


def test_what_is_measured_counts_when_all_have_changed() -> None:
    gate = Gate()
    update(gate, 1.5)
    assert not gate.is_settled(4)
    rounds(gate, 8)
    assert gate.is_settled(4)
    rounds(gate, 8)
    update(gate, 0.5)
    assert not gate.is_settled(4)

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish import fair_queue
from pilotfish.fair_queue import FairQueue


def drained(queue: FairQueue[str]) -> list[str]:
    return [queue.pop()[1] for _ in range(len(queue))]


def test_turns_are_weighted_by_cost() -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(90):
        queue.push("long", "long", 300)
        queue.push("short", "short", 100)
    served = Counter(drained(queue)[:80])
    assert served["short"] == pytest.approx(60, abs=1)
    assert served["long"] == pytest.approx(20, abs=1)


def test_a_correction_gives_turns_back() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.push("a", f"a{number}", 100)
        queue.push("b", f"b{number}", 100)
    assert {queue.pop()[0], queue.pop()[0]} == {"a", "b"}
    queue.correct("a", -100)
    queue.correct("nobody", -100)
    assert queue.pop()[0] == "a"


def test_removed_items_never_come_and_are_not_charged() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("a", "a0", 1000)
    queue.push("a", "a1", 10)
    queue.push("b", "b0", 10)
    queue.remove("a", "a0")
    queue.remove("a", "a0")
    queue.remove("nobody", "a0")
    assert len(queue) == 2
    assert queue.num_items("a") == 1
    assert drained(queue) == ["a1", "b0"]
    assert queue.num_items("a") == 0


def test_the_newest_of_the_client_that_has_most_is_dropped() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a0", "b0", "b1"):
        queue.push(item[0], item, 1)
    assert queue.drop() == "b1"
    assert sorted(drained(queue)) == ["a0", "b0"]
    with pytest.raises(ValueError, match="empty"):
        queue.drop()


def test_clients_that_invent_names_do_not_fill_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(fair_queue, "_MAX_IDLE_CLIENTS", 10)
    queue: FairQueue[str] = FairQueue()
    queue.push("served", "s", 1000)
    queue.pop()
    for number in range(100):
        queue.push(f"client{number}", "x", 0)
        queue.remove(f"client{number}", "x")
    queue.push("served", "again", 1)
    queue.push("new", "n", 1)
    assert drained(queue) == ["again", "n"], "what it was served is forgotten"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=60))
def test_backlogged_clients_get_equal_service_up_to_one_request(pushes) -> None:
    """The bound of start-time fair queueing: while two clients wait, their service differs by two items at most."""
    queue: FairQueue[int] = FairQueue()
    for number, (client_id, cost) in enumerate(pushes):
        queue.push(client_id, number, cost)
    service: Counter[str] = Counter()
    while len(queue):
        waiting = [client_id for client_id in "abc" if queue.num_items(client_id)]
        for one in waiting:
            for other in waiting:
                assert abs(service[one] - service[other]) <= 50
        client_id, _, cost = queue.pop()
        service[client_id] += cost


def test_of_clients_that_wait_with_as_many_the_last_to_come_is_dropped() -> None:
    queue = FairQueue[str]()
    for name in "abc":
        queue.push(name, name, 1.0)
    assert queue.drop() == "c"


def test_names_that_are_new_each_time_do_not_keep_a_client_that_was_served_from_its_next_turn() -> None:
    queue = FairQueue[str]()
    queue.push("known", "first", 10.0)
    queue.pop()
    queue.push("known", "second", 10.0)
    turns = []
    for number in range(50):
        queue.push(f"new{number}", "flood", 10.0)
        turns.append(queue.pop()[1])
    assert turns.index("second") <= 3


@pytest.mark.parametrize("first", ["alone", "other"])
def test_a_client_owes_nothing_for_what_it_used_while_nobody_waited(first: str) -> None:
    queue = FairQueue[str]()
    queue.push("alone", "long", 1.0)
    queue.pop()
    queue.correct("alone", 1000.0)  # it took that much longer
    for number in range(3):
        for name in sorted(("alone", "other"), key=lambda name: name != first):
            queue.push(name, f"{name[0]}{number}", 1.0)
    assert sorted(drained(queue)[:4]) == ["a0", "a1", "o0", "o1"]

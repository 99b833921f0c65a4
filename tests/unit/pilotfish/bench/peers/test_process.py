"""Peers in processes of their own: small ones, that speak as real ones do."""

import sys

import pytest

from pilotfish.bench.peers.process import PeerArm, PeerProcess
from pilotfish.config import environment
from pilotfish.errors import DeadlineExceededError, UnavailableError

pytestmark = pytest.mark.usefixtures("no_child_left")

ECHO = """
import time
from pilotfish.bench.peers.worker import serve

def load():
    print("a library's banner")
    def answer(prompt_token_ids, max_tokens, temperature, mode, on_tokens):
        if mode == "broken":
            raise ValueError("no such mode")
        if mode == "temperature":
            prompt_token_ids = [int(100 * temperature)]
        if mode == "endless":
            time.sleep(600)
        if mode == "dead":
            raise SystemExit("out of memory")
        print("noise between the lines")
        on_tokens([])
        on_tokens(prompt_token_ids[:1])
        on_tokens(prompt_token_ids[1:max_tokens])
    return {"version": "1"}, answer

serve(load)
"""
REFUSE = """
from pilotfish.bench.peers.worker import serve

def load():
    raise RuntimeError("no weights here")

serve(load)
"""
BATCHES = """
from pilotfish.bench.peers.worker import serve_batches

def load():
    def answer(request, on_tokens):
        for index in reversed(range(len(request["prompts"]))):
            on_tokens(index, request["prompts"][index][: request["max_tokens"]])
        return {"num_at_once": request["concurrency"]}
    return {}, answer

serve_batches(load)
"""
START_TIMEOUT_S = 60.0


def peer(script: str, *, name: str = "echo", start_timeout_s: float = START_TIMEOUT_S) -> PeerProcess:
    argv = [sys.executable, "-c", script]
    return PeerProcess(name, argv, environment=environment(), start_timeout_s=start_timeout_s)


def test_answers_are_measured_by_arrival_and_noise_does_not_disturb() -> None:
    with peer(ECHO) as process:
        assert process.facts == {"version": "1"}
        arm = PeerArm(process, "plain", timeout_s=60)
        assert arm.name == "echo plain"
        for _ in range(2):
            measurement = arm.answer([7, 8, 9, 10], max_tokens=3)
            assert measurement.token_ids == (7, 8, 9)
            assert [arrival.num_tokens for arrival in measurement.arrivals] == [1, 2]
            assert measurement.summary is None
            assert 0 < measurement.time_to_first_token_s <= measurement.total_s


def test_a_failed_answer_is_told_and_the_next_one_works() -> None:
    with peer(ECHO) as process:
        with pytest.raises(UnavailableError, match="echo: ValueError: no such mode"):
            process.ask([[1]], max_tokens=1, mode="broken", timeout_s=60)
        assert process.ask([[1]], max_tokens=1, mode="plain", timeout_s=60).token_ids == [(1,)]


def test_one_that_dies_leaves_its_last_words() -> None:
    with peer(ECHO) as process:
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"(?s)echo ended: .*out of memory"):
                process.ask([[1]], max_tokens=1, mode="dead", timeout_s=60)


def test_one_that_hangs_is_given_up_and_killed() -> None:
    with pytest.raises(DeadlineExceededError, match=r"echo did not answer within 0.1 s"), peer(ECHO) as process:
        process.ask([[1]], max_tokens=1, mode="endless", timeout_s=0.1)


def test_one_that_cannot_load_says_why() -> None:
    with pytest.raises(UnavailableError, match="refuse: RuntimeError: no weights here"), peer(REFUSE, name="refuse"):
        pytest.fail("it must not start")


def test_prompts_of_a_batch_are_answered_in_their_order_by_whoever_can_or_cannot_answer_several_at_once() -> None:
    prompts = [[1, 2], [3, 4, 5]]
    for script in (ECHO, BATCHES):
        with peer(script) as process:
            batch = process.ask(prompts, max_tokens=2, mode="plain", timeout_s=60, concurrency=2)
            assert batch.token_ids == [(1, 2), (3, 4)]
            assert batch.num_tokens == 4
            assert batch.elapsed_s == max(answer.total_s for answer in batch.answers) > 0
            assert batch.counters == ({} if script == ECHO else {"num_at_once": 2})

"""Who asks, and until when."""

import asyncio
import time

import pytest

from orchestrator.requests.caller import Caller
from pilotfish.errors import DeadlineExceededError


def caller(timeout_s: float | None, age_s: float = 0.0) -> Caller:
    return Caller(client_id="a", arrival_ns=time.monotonic_ns() - int(age_s * 1e9), timeout_s=timeout_s)


def test_replicas_know_a_client_by_a_name_that_does_not_tell_who_it_is() -> None:
    first, again, other = (Caller(client_id=name, arrival_ns=0).alias for name in ("key bob", "key bob", "key eve"))
    assert first == again != other
    assert "bob" not in first
    assert Caller(client_id="\udcff", arrival_ns=0).alias


async def test_a_deadline_ends_what_lasts_longer() -> None:
    with pytest.raises(DeadlineExceededError, match=r"before the answer was complete, after 0\.01 s"):
        async with caller(0.01).deadline():
            await asyncio.Event().wait()


async def test_it_counts_from_the_arrival() -> None:
    with pytest.raises(DeadlineExceededError):
        async with caller(3600, age_s=3600).deadline():
            await asyncio.Event().wait()


@pytest.mark.parametrize("timeout_s", [None, 60.0, 1e10])  # gRPC tells an absurdly long time where there is none
async def test_what_is_in_time_is_left_alone(timeout_s: float | None) -> None:
    async with caller(timeout_s).deadline():
        await asyncio.sleep(0)


@pytest.mark.parametrize("timeout_s", [None, 60.0])
async def test_a_timeout_of_something_else_is_not_taken_for_it(timeout_s: float | None) -> None:
    with pytest.raises(TimeoutError):
        async with caller(timeout_s).deadline():
            raise TimeoutError

"""A client's deadline: honoured in the queue and while an answer is made."""

import openai
import pytest

LONG = {"max_tokens": 100_000, "extra_body": {"ignore_eos": True}}
IN_TIME = {"x-request-timeout-ms": "60000"}
SOON = {"x-request-timeout-ms": "100"}


def test_an_answer_that_takes_too_long_is_ended(emulated_server, emulated_client: openai.OpenAI) -> None:
    failures = emulated_server.orchestrator.service.statistics.failures
    num_late = failures["deadline_exceeded"]
    with pytest.raises(openai.InternalServerError) as failure:
        # A client that tries again would find its deadline passed again.
        emulated_client.with_options(max_retries=2).completions.create(
            model="", prompt="sea", extra_headers=SOON, **LONG
        )
    assert failure.value.status_code == 504
    assert (failure.value.type, failure.value.code) == ("timeout_error", "deadline_exceeded")
    emulated_server.wait_until_idle()
    assert failures["deadline_exceeded"] == num_late + 1


def test_a_stream_says_that_it_was_ended(emulated_server, emulated_client: openai.OpenAI) -> None:
    stream = emulated_client.completions.create(model="", prompt="sea", stream=True, n=2, extra_headers=SOON, **LONG)
    with pytest.raises(openai.APIError, match="before the answer was complete") as failure:
        assert list(stream)
    assert failure.value.code == "deadline_exceeded"
    emulated_server.wait_until_idle()


def test_it_holds_in_the_queue(start_server, client_of) -> None:
    with start_server(max_concurrent_requests=1) as server:
        client = client_of(server)
        with client.completions.create(model="", prompt="sea", stream=True, **LONG) as stream:
            next(stream)
            with pytest.raises(openai.InternalServerError, match="waited for its turn") as failure:
                client.completions.create(model="", prompt="sky", extra_headers=SOON)
            assert failure.value.status_code == 504
        assert client.completions.create(model="", prompt="sky", extra_headers=IN_TIME).choices

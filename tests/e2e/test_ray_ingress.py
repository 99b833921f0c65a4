"""`pilotfish up --ray` with an ingress: clients use the port of Serve's proxy as they would the orchestrator's own."""

from collections.abc import Callable

import httpx
import openai
import pytest

from pilotfish.launch.specs import free_ports

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def urls(start_up: Callable) -> tuple[str, str]:
    """Of the own listener and of the proxy."""
    own, proxy = free_ports(2)
    ports = {"orchestrator.http.port": own, "deployment.orchestrator.ingress_port": proxy}
    up = start_up(
        "--ray",
        "--emulate",
        "h100-70b-tp4",
        *(part for name, port in ports.items() for part in ("--set", f"{name}={port}")),
    )
    assert up.address
    return f"http://127.0.0.1:{own}", f"http://127.0.0.1:{proxy}"


def test_both_ways_give_the_same_answer(urls: tuple[str, str]) -> None:
    answers = []
    for url in urls:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            model = client.models.list().data[0].id
            asked = {"model": model, "prompt": "a b c", "max_tokens": 40, "seed": 5}
            whole = client.completions.create(**asked).choices[0].text
            pieces = [event.choices[0].text for event in client.completions.create(**asked, stream=True)]
            assert len(pieces) > 1
            assert "".join(pieces) == whole
            with pytest.raises(openai.BadRequestError) as refused:
                client.completions.create(**{**asked, "max_tokens": -1})
            assert refused.value.param == "max_tokens"
            answers.append((model, whole))
    assert answers[0] == answers[1]


def test_who_leaves_is_no_longer_served(urls: tuple[str, str]) -> None:
    own, proxy = urls

    def num_running() -> float:
        lines = httpx.get(f"{own}/metrics").text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith("pilotfish_num_requests_running{"))

    body = {"prompt": "a b c", "max_tokens": 2000, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{proxy}/v1/completions", json=body, timeout=60) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        assert num_running() == 1
    while num_running() > 0:  # the test's own timeout bounds it
        pass

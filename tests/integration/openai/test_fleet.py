"""GET /fleet over the emulated engine."""

from typing import Any

import openai


def fleet_of(server: Any) -> dict[str, Any]:
    response = server.http.get("/fleet")
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    return body


def test_it_tells_what_is_served_and_how_to_speculate(emulated_server) -> None:
    fleet = fleet_of(emulated_server)
    assert (fleet["model"], fleet["emulated"]) == ("emulated instant", True)
    assert fleet["defaults"] == {"mode": "auto", "proposer": "auto", "num_speculative_tokens": 5}
    assert fleet["proposers"] == ["ngram", "suffix"], "there is no draft pool here, and no drafter in the target"
    assert fleet["max_draft_tokens"] > 0
    (target,) = fleet["targets"]
    assert (target["is_healthy"], target["circuit"], target["problem"]) == (True, "closed", "")
    assert target["max_sequences"] > 0
    assert fleet["drafts"] == []


def ask(client: openai.OpenAI, text: str, max_tokens: int, proposer: str) -> None:
    """Greedily, with speculation in every round."""
    client.chat.completions.create(
        model="",
        messages=[{"role": "user", "content": text}],
        max_tokens=max_tokens,
        temperature=0,
        extra_body={"speculation": {"mode": "on", "proposer": proposer}},
    )


def test_what_requests_did_is_counted(emulated_server, emulated_client: openai.OpenAI) -> None:
    before = fleet_of(emulated_server)
    ask(emulated_client, "swim", 20, "ngram")
    after = fleet_of(emulated_server)
    grown = {name: after["requests"][name] - before["requests"][name] for name in before["requests"]}
    assert (grown["num_output_tokens"], grown["num_finished"], grown["num_failed"]) == (20, 1, 0)
    assert after["caches"]["prefix_tokens"]["num_lookups"] > before["caches"]["prefix_tokens"]["num_lookups"]
    reasons = {each["reason"]: each for each in after["controller"]["decisions"]}
    assert reasons["requested"]["text"] == "the request asks for it"
    assert after["controller"]["latest_reason"] == "requested", "and not that of the last token"
    (state,) = (state for state in after["controller"]["states"] if state["proposer"] == "ngram")
    assert state["measured_gain"] is None or state["measured_gain"] > 0
    assert state["expected_gain"] is None, "mode `on` makes no plan"


def test_acceptance_is_told_by_kind_of_request(emulated_server, emulated_client: openai.OpenAI) -> None:
    """The same answer once more: a lookup finds it in the first."""
    for _ in range(2):
        ask(emulated_client, "swim twice", 60, "suffix")
    fleet = fleet_of(emulated_server)
    (kind,) = fleet["kinds"]
    assert kind["kind"] == "plain"
    counts = ("num_draft_tokens", "num_accepted_tokens")
    assert [kind[name] for name in counts] == [fleet["requests"][name] for name in counts]
    assert kind["num_accepted_tokens"] > 0


def test_a_plan_says_what_it_expects_of_drafts(emulated_server, emulated_client: openai.OpenAI) -> None:
    emulated_client.chat.completions.create(
        model="",
        messages=[{"role": "user", "content": "swim"}],
        max_tokens=40,
        temperature=0,
        extra_body={"speculation": {"mode": "auto", "proposer": "suffix"}},
    )
    (state,) = (each for each in fleet_of(emulated_server)["controller"]["states"] if each["proposer"] == "suffix")
    assert state["num_draft_tokens"] > 0
    assert state["expected_gain"] > 0


def test_what_runs_now_is_seen(emulated_server, emulated_client: openai.OpenAI) -> None:
    emulated_server.wait_until_idle()  # of what tests before left
    stream = emulated_client.chat.completions.create(
        model="",
        messages=[{"role": "user", "content": "swim far"}],
        max_tokens=100_000,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    with stream:
        next(iter(stream))
        fleet = fleet_of(emulated_server)
        assert fleet["requests"]["num_running"] == 1
        assert fleet["targets"][0]["num_sequences"] == 1
    emulated_server.wait_until_idle()

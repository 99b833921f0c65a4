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


def test_what_requests_did_is_counted(emulated_server, emulated_client: openai.OpenAI) -> None:
    before = fleet_of(emulated_server)
    emulated_client.chat.completions.create(
        model="",
        messages=[{"role": "user", "content": "swim"}],
        max_tokens=20,
        temperature=0,
        extra_body={"speculation": {"mode": "on", "proposer": "ngram"}},
    )
    after = fleet_of(emulated_server)
    grown = {name: after["requests"][name] - before["requests"][name] for name in before["requests"]}
    assert (grown["num_output_tokens"], grown["num_finished"], grown["num_failed"]) == (20, 1, 0)
    assert after["caches"]["prefix_tokens"]["num_lookups"] > before["caches"]["prefix_tokens"]["num_lookups"]
    reasons = {each["reason"]: each for each in after["controller"]["decisions"]}
    assert reasons["requested"]["text"] == "the request asks for it"
    assert after["controller"]["latest_reason"] == "requested", "and not that of the last token"
    assert {state["proposer"] for state in after["controller"]["states"]} >= {"ngram"}


def test_what_runs_now_is_seen(emulated_server, emulated_client: openai.OpenAI) -> None:
    stream = emulated_client.chat.completions.create(
        model="", messages=[{"role": "user", "content": "swim far"}], max_tokens=4000, stream=True
    )
    with stream:
        next(iter(stream))
        fleet = fleet_of(emulated_server)
        assert fleet["requests"]["num_running"] == 1
        assert fleet["targets"][0]["num_sequences"] == 1

"""Lossy acceptance through HTTP: told wherever an answer is told of."""

from typing import Any

import httpx

from pilotfish.config import SpeculationConfig
from tests.support.stack import StackThread

BODY = {"prompt": "ab ab", "seed": 11, "max_tokens": 24, "temperature": 0}
EXACT = {"mode": "on", "proposer": "ngram", "return_tokens": True}
TYPICAL = {**EXACT, "acceptance": "typical", "typical_epsilon": 0}


def complete(http: httpx.Client, speculation: dict[str, Any], **fields: Any) -> httpx.Response:
    body = {**BODY, **fields, "speculation": speculation}
    return http.post("/v1/completions", json=body)


def test_where_everything_stands_the_drafts_are_the_text(real_server: StackThread) -> None:
    """The model says one letter for ever; a lookup drafts what followed it in the prompt."""
    tokens = complete(real_server.http, EXACT).json()["choices"][0]["speculation"]["tokens"]
    letter, token_id = tokens["texts"][0], tokens["token_ids"][0]
    other = "Z" if letter != "Z" else "Y"
    fields = {"prompt": f"{letter}{other}" * 4, "logit_bias": {str(token_id): 50}}
    with real_server.other_orchestrator(speculation=SpeculationConfig(allow_lossy=True)) as http:
        exact, lossy = (complete(http, speculation, **fields) for speculation in (EXACT, TYPICAL))
    assert exact.json()["choices"][0]["text"] == letter * 24
    (choice,) = lossy.json()["choices"]
    assert f"{letter}{other}{letter}{other}" in choice["text"]
    assert lossy.headers["x-pilotfish-lossy"] == "typical"
    assert "x-pilotfish-lossy" not in exact.headers
    assert choice["speculation"]["report"]["lossy"] is True

"""LangChain's ChatOpenAI works unchanged."""

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of theirs, while they are imported
    import langchain_openai

pytestmark = pytest.mark.filterwarnings("ignore")


def test_invoke_and_stream(emulated_server) -> None:
    model = emulated_server.orchestrator.service.targets.links[0].model.model_id
    chat = langchain_openai.ChatOpenAI(
        model=model, base_url=f"{emulated_server.url}/v1", api_key="none", max_tokens=8, seed=3, temperature=0.5
    )
    answer = chat.invoke("sea")
    assert answer.content
    assert answer.usage_metadata["output_tokens"] <= 8
    assert "".join(piece.content for piece in chat.stream("sea")) == answer.content


def test_a_conversation_over_responses(emulated_server) -> None:
    model = emulated_server.orchestrator.service.targets.links[0].model.model_id
    url = f"{emulated_server.url}/v1"
    chat = langchain_openai.ChatOpenAI(
        model=model, base_url=url, api_key="none", max_tokens=8, use_responses_api=True, reasoning={"effort": "low"}
    )
    tools = [
        {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}},
        {"type": "web_search"},
    ]
    calling = chat.bind_tools(tools, parallel_tool_calls=False)
    answer = calling.invoke("sea")
    assert answer.text
    assert calling.invoke([("user", "sea"), answer, ("user", "more")]).text
    assert "".join(piece.text for piece in calling.stream([("user", "sea"), answer, ("user", "more")]))

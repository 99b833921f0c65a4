"""The asyncio client against a running Pilotfish over emulated engines."""

import asyncio

import pytest

from pilotfish.client.answer import Chunk, GenerateOptions, TokenPrompt
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.client.inference import InferenceClient

PROMPT = TokenPrompt((5, 6, 7, 5, 6, 7))
OPTIONS = GenerateOptions(max_tokens=12, temperature=0, ignore_eos=True)


async def follow(client: AsyncInferenceClient, prompt: TokenPrompt = PROMPT) -> tuple[list[int], int]:
    token_ids: list[int] = []
    summary = await client.follow(prompt, OPTIONS, timeout_s=60, on_tokens=token_ids.extend)
    return token_ids, summary.num_output_tokens


async def test_many_at_once_over_several_channels_get_what_one_gets(address: str) -> None:
    with InferenceClient(address) as blocking:
        messages = blocking.generate(PROMPT, OPTIONS, timeout_s=60)
        expected = [token_id for message in messages if isinstance(message, Chunk) for token_id in message.token_ids]
    async with AsyncInferenceClient(address, num_channels=3) as client:
        answers = await asyncio.gather(*(follow(client) for _ in range(10)))
    assert answers == [(expected, 12)] * 10


async def test_cancelling_ends_the_call(address: str) -> None:
    started = asyncio.Event()
    options = GenerateOptions(max_tokens=400, temperature=0, ignore_eos=True)
    async with AsyncInferenceClient(address) as client:
        call = asyncio.create_task(
            client.follow(PROMPT, options, timeout_s=60, on_tokens=lambda _token_ids: started.set())
        )
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await follow(client))[1] == 12

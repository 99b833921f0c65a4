"""Messages that a decoder would make too much of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.errors import InvalidRequestError
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import types_pb2
from pilotfish.rpc.wire_items import check_items

MOST = 100
KIND = pb.GenerateRequest.DESCRIPTOR
CHAT = pb.ChatPrompt(messages=[pb.ChatMessage()] * (MOST + 1))


@pytest.mark.parametrize(
    "request_",
    [
        pb.GenerateRequest(stop=[""] * (MOST + 1)),
        pb.GenerateRequest(logit_bias=[types_pb2.LogitBias()] * (MOST + 1)),
        pb.GenerateRequest(chat=CHAT),
    ],
    ids=["texts", "messages", "messages within a message"],
)
async def test_too_many_items_are_refused(request_: pb.GenerateRequest) -> None:
    with pytest.raises(InvalidRequestError, match=f"more than {MOST} items"):
        await check_items(request_.SerializeToString(), KIND, MOST)


async def test_unknown_fields_count_as_well() -> None:
    with pytest.raises(InvalidRequestError):
        await check_items(b"\xfa\x7d\x00" * (MOST + 1), KIND, MOST)


@pytest.mark.parametrize(
    "request_",
    [
        pb.GenerateRequest(tokens=pb.TokenPrompt(token_ids=range(10_000)), stop_token_ids=range(1000)),
        pb.GenerateRequest(text="x" * 100_000, stop=["y" * 1000] * (MOST - 1)),
    ],
    ids=["token ids", "long texts"],
)
async def test_long_prompts_are_few_items(request_: pb.GenerateRequest) -> None:
    await check_items(request_.SerializeToString(), KIND, MOST)


async def test_token_ids_that_are_not_packed_are_no_items() -> None:
    await check_items(b"\x78\x07" * 10_000, KIND, MOST)


@given(st.binary(max_size=400))
async def test_what_is_no_message_is_for_the_decoder(data: bytes) -> None:
    try:
        await check_items(data, KIND, 1)
    except InvalidRequestError:
        assert len(data) > 2


async def test_a_number_without_an_end_takes_no_time() -> None:
    await check_items(b"\xff" * 4_000_000, KIND, MOST)

"""No API lacks an option that the engine has."""

import dataclasses

from orchestrator.http.completions.sampling import GenerationFields, SpeculationFields
from orchestrator.requests.request import AnswerOptions, SpeculationOptions
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.types import SamplingParams

OPTIONS = {
    *SamplingParams.__struct_fields__,
    *(each.name for options in (SpeculationOptions, AnswerOptions) for each in dataclasses.fields(options)),
}


def test_every_option_has_a_field_in_grpc() -> None:
    messages = (pb.GenerateRequest.DESCRIPTOR, pb.SpeculationOptions.DESCRIPTOR)
    named = {field.name for message in messages for field in message.fields}
    others = {"num_logprobs": "logprobs", "skip_special_tokens": "show_special_tokens"}
    missing = {name for name in OPTIONS if others.get(name, name) not in named}
    assert missing == {"num_prompt_logprobs"}, "of HTTP alone"


def test_every_option_has_a_field_in_http() -> None:
    named = {*GenerationFields.__struct_fields__, *SpeculationFields.__struct_fields__}
    others = {
        "include_stop": "include_stop_str_in_output",
        "num_prompt_logprobs": "prompt_logprobs",
        "grammar": "structured_outputs",
    }
    missing = {name for name in OPTIONS if others.get(name, name) not in named}
    assert missing == {"num_logprobs"}, "which chats and completions spell each in their own way"

"""OpenVINO GenAI as a peer (see worker.py): an exported folder or a GGUF, plain or with lookup."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino
import openvino_genai
from worker import Answer, OnTokens, options_parser, serve

LOOKUP_TOKENS = 5
LOOKUP_NGRAM = 3
"""As in OpenVINO's own prompt lookup sample."""


NO_TOP_K = 2**31
"""More than any vocabulary has."""


class Streamer(openvino_genai.StreamerBase):
    """Passes tokens on as they come, one or several."""

    def __init__(self, on_tokens: OnTokens) -> None:
        super().__init__()
        self._on_tokens = on_tokens

    def write(self, token: int | Sequence[int]) -> openvino_genai.StreamingStatus:
        self._on_tokens([token] if isinstance(token, int) else list(token))
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Nothing is held back."""


def load(model: str, lookup: bool, threads: int) -> tuple[dict[str, Any], Answer]:
    properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if not model.endswith(".gguf"):
        properties["INFERENCE_PRECISION_HINT"] = "bf16"
    pipeline = openvino_genai.LLMPipeline(model, "CPU", **properties, **({"prompt_lookup": True} if lookup else {}))

    def answer(request: dict[str, Any], on_tokens: OnTokens) -> None:
        config = pipeline.get_generation_config()
        config.max_new_tokens = request["max_tokens"]
        config.do_sample = request["temperature"] > 0
        if config.do_sample:
            config.temperature, config.rng_seed = request["temperature"], request["seed"]
            config.top_p = 1.0
            config.top_k = NO_TOP_K
        config.apply_chat_template = False
        if lookup:
            config.num_assistant_tokens = LOOKUP_TOKENS
            config.max_ngram_size = LOOKUP_NGRAM
        input_ids = np.array(request["prompts"], dtype=np.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(input_ids), openvino.Tensor(np.ones_like(input_ids)))
        pipeline.generate(inputs, config, Streamer(on_tokens))

    return {"version": openvino_genai.__version__, "threads": threads}, answer


if __name__ == "__main__":
    options = options_parser(__doc__).parse_args()
    serve(lambda: load(options.model, options.mode == "lookup", options.threads))

"""What does lossy acceptance bring, and what does it cost?

The default target and its head answer the same prompts greedily in turns: plainly, with exact drafts, and with lossy
acceptance at several settings. Speed is that of decoding, beside plain. What is paid is told by the target itself: the
mean log-probability of the tokens that were output, and the share of them that it would not have chosen there.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from shared.asking import Answer, ask_all, chat_request
from shared.report import Report, parser

from pilotfish.bench.prompts import load_prompts
from pilotfish.bench.quality import quality_of
from pilotfish.bench.suite import STACK_DEFAULTS
from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import types_pb2

K = 5
_TYPICAL, _TOLERANCE = types_pb2.ACCEPTANCE_MODE_TYPICAL, types_pb2.ACCEPTANCE_MODE_TOLERANCE
ARMS: dict[str, dict[str, Any]] = {
    "plain": {"mode": pb.SPECULATION_MODE_OFF},
    "exact": {},
    "typical 0.09, 0.3 (Medusa)": {"acceptance": _TYPICAL},
    "typical 0.3, 0.6": {"acceptance": _TYPICAL, "typical_epsilon": 0.3, "typical_delta": 0.6},
    "tolerance 10, 0.6 (TensorRT-LLM)": {"acceptance": _TOLERANCE},
    "tolerance 2, 0.1": {"acceptance": _TOLERANCE, "tolerance_top_k": 2, "tolerance_delta": 0.1},
}


def token_ms(answer: Answer) -> float | None:
    """Between the first tokens and the last; None for an answer that came at once."""
    first, last = answer.arrivals[0], answer.arrivals[-1]
    num_tokens = len(answer.token_ids) - first.num_tokens
    return 1e3 * (last.time_s - first.time_s) / num_tokens if num_tokens else None


def add_row(report: Report, name: str, answers: Sequence[Answer], plain: Sequence[Answer]) -> None:
    """One arm's figures over all prompts."""
    speed_ups = [
        own / ours for a, b in zip(answers, plain, strict=True) if (ours := token_ms(a)) and (own := token_ms(b))
    ]
    quality = quality_of((answer.token_ids, answer.logprobs) for answer in answers)
    assert quality is not None
    stats = [answer.summary.speculation for answer in answers]
    steps = sum(each.num_rounds + each.num_plain_tokens for each in stats)
    report.row(
        acceptance=name,
        speed_up=statistics.geometric_mean(speed_ups),
        tokens_a_step=sum(len(answer.token_ids) for answer in answers) / max(1, steps),
        mean_logprob=quality.mean_logprob,
        not_the_targets_choice=quality.other_tokens,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__, dataset=True)
    options_parser.add_argument("--prompts", type=int, default=2, help="of each category")
    options_parser.add_argument("--max-tokens", type=int, default=128)
    options_parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    options = options_parser.parse_args(arguments)
    prompts = load_prompts(options.dataset, per_category=1 if options.quick else options.prompts)
    answers: dict[str, list[Answer]] = {name: [] for name in ARMS}
    with LocalStack(load_config(overrides=[*STACK_DEFAULTS, *options.set])) as stack, asyncio.Runner() as runner:
        for prompt in [prompts[0], *prompts]:  # the first warms up
            for name, arm in ARMS.items():
                speculation = pb.SpeculationOptions(
                    **{"mode": pb.SPECULATION_MODE_ON, "num_speculative_tokens": K, **arm}
                )
                fields = {"max_tokens": options.max_tokens, "logprobs": 1, "temperature": 0.0}
                request = chat_request(prompt.text, speculation=speculation, **fields)
                answers[name] += runner.run(ask_all(stack.address, [request], 1))
    conditions = {"prompts": len(prompts), "dataset": str(options.dataset or "our own"), "K": K, "temperature": 0}
    report = Report("What does lossy acceptance bring, and what does it cost?", conditions)
    for name, own in answers.items():
        add_row(report, name, own[1:], answers["plain"][1:])
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

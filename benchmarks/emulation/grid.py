"""Speed-up of synchronous drafting beside the formula, cell by cell (issue 4, part a)."""

from __future__ import annotations

import asyncio
import math
import statistics
from dataclasses import dataclass, field

from emulation.client import Client, Span, connected
from emulation.stack import PROFILE, emulated_config
from report import Report

from pilotfish.launch.local_stack import LocalStack
from pilotfish.profiles import load_profile
from pilotfish.speculation.cost import expected_tokens, speedup

PUBLISHED = {0.3: 1.1, 0.5: 1.4, 0.7: 2.1, 0.8: 2.8, 0.9: 3.8}
"""Articles' speed-ups of a 70B target on A100s by acceptance; they do not say at which K."""
TOLERANCE = 0.07
NOISE = 0.02
"""Of the tokens a round yields: one standard deviation of their mean, in a cell, at most."""
QUICK_NOISE = 0.06
ANSWER_TOKENS = 512
"""Short enough that the context costs next to nothing."""


@dataclass(slots=True)
class Cell:
    """One K at one acceptance."""

    num_draft_tokens: int
    num_rounds_wanted: int
    span: Span = field(default_factory=Span)

    @property
    def is_done(self) -> bool:
        return self.span.num_rounds >= self.num_rounds_wanted


def run_grid(report: Report, *, quick: bool) -> None:
    """A row per cell, and checks over all of them."""
    rates = (0.5, 0.8) if quick else tuple(PUBLISHED)
    depths = (1, 5) if quick else tuple(range(1, 9))
    noise = QUICK_NOISE if quick else NOISE
    deviations, noises, overheads_ms = [], [], []
    for rate in rates:
        best = 0.0
        plain, cells = asyncio.run(_measure(rate, depths, noise))
        for cell in cells:
            row = _row(rate, plain, cell)
            report.row(**row)
            best = max(best, row["speed_up"])
            deviations.append(abs(row["speed_up"] / row["formula"] - 1))
            noises.append(expected_noise(rate, cell.num_draft_tokens) / math.sqrt(cell.span.num_rounds))
            overheads_ms.append(row["overhead_median_ms"])
        if not quick:
            report.row(part="grid", acceptance=rate, K="best", speed_up=best, published=PUBLISHED[rate])
    report.check("grid: largest deviation of a cell's speed-up from the formula", max(deviations), TOLERANCE, "of it")
    report.check("grid: largest standard deviation from the draw of acceptances", max(noises), noise, "of a speed-up")
    report.conditions["grid"] = (
        f"a round costs {statistics.mean(overheads_ms):.2f} ms more than its steps (median): two gRPC round trips and "
        "the processes between them; it is what lies between measured and formula. The published table names no K: "
        "compare it with the best of the row's K"
    )


def formula(rate: float, num_draft_tokens: int) -> float:
    """Speed-up over plain decoding (Leviathan et al. 2211.17192, theorem 3.8)."""
    profile = load_profile(PROFILE)
    cost = profile.draft.step_s(1, 1) / profile.target.step_s(1, 1)
    return speedup(rate, num_draft_tokens, cost)


def expected_noise(rate: float, num_draft_tokens: int) -> float:
    """Standard deviation of a round's tokens over their mean."""
    tails = [rate**accepted for accepted in range(num_draft_tokens + 1)]  # P(tokens > accepted)
    mean = sum(tails)
    square = sum((2 * accepted + 1) * tail for accepted, tail in enumerate(tails))
    return math.sqrt(square - mean**2) / mean


async def _measure(rate: float, depths: tuple[int, ...], noise: float) -> tuple[Span, list[Cell]]:
    cells = [Cell(depth, math.ceil((expected_noise(rate, depth) / noise) ** 2)) for depth in depths]
    plain = Span()
    with LocalStack(emulated_config(rate, draft_ahead="off")) as stack:
        async with connected(stack.address) as client:
            await client.ask("on", 64)
            while not all(cell.is_done for cell in cells):
                for cell in cells:
                    if not cell.is_done:
                        cell.span += await _ask(client, "on", cell.num_draft_tokens)
                plain += await _ask(client, "off", 0)
    return plain, cells


async def _ask(client: Client, mode: str, num_draft_tokens: int) -> Span:
    answer = await client.ask(mode, ANSWER_TOKENS, num_speculative_tokens=num_draft_tokens or None)
    # Towards the end there is less room for drafts.
    return answer.span(num_draft_tokens + 1)


def _row(rate: float, plain: Span, cell: Cell) -> dict[str, float]:
    depth, span = cell.num_draft_tokens, cell.span
    profile = load_profile(PROFILE)
    steps_s = profile.propose_s(1, depth) + profile.target.step_s(1, depth + 1)
    speed_up = span.tokens_per_s / plain.tokens_per_s
    realised = span.num_tokens / span.num_rounds
    return {
        "part": "grid",
        "acceptance": rate,
        "K": depth,
        "speed_up": speed_up,
        "formula": formula(rate, depth),
        "ratio": speed_up / formula(rate, depth),
        "tokens_per_round": realised,
        "expected": expected_tokens(rate, depth),
        "ratio_at_expected": speed_up / formula(rate, depth) * expected_tokens(rate, depth) / realised,
        "overhead_ms": 1e3 * (span.elapsed_s / span.num_rounds - steps_s),
        "overhead_median_ms": 1e3 * (statistics.median(span.rounds_s) - steps_s),
        "plain_tokens_per_s": plain.tokens_per_s,
        "rounds": span.num_rounds,
    }

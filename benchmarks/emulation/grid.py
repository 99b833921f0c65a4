"""Speed-up of synchronous drafting beside the formula, cell by cell (part a).

The formula's round is its steps and nothing else. What a round takes besides (two round trips between processes, and
waking them) is measured, printed, and put into the formula as one constant for all cells: what is left then is not
explained by it. Slower hardware has fewer cells: the formula is the same, and what this machine's processors do in a
round weighs as many times less.
"""

import asyncio
import contextlib
import itertools
import math
import statistics
from dataclasses import dataclass, field

from emulation.client import PROFILE, Client, Span, cpu_times_s, emulated_config, span_of
from shared.asking import connected
from shared.report import Report

from pilotfish.emulation.profiles import load_profile
from pilotfish.launch.local_stack import LocalStack
from pilotfish.speculation.cost import expected_tokens_by_position

PUBLISHED = {0.3: 1.1, 0.5: 1.4, 0.7: 2.1, 0.8: 2.8, 0.9: 3.8}
"""Articles' speed-ups of a 70B target on A100s by acceptance; they do not say at which K."""
TOLERANCE = 0.07
NOISE = 0.02
"""The most that one standard deviation of a cell's mean tokens a round may be."""
QUICK_RATES, QUICK_DEPTHS, QUICK_NOISE = (0.5, 0.8), (1, 5), 0.06
SLOW_DEPTHS, SLOW_NOISE = (1, 3, 5, 8), 0.0125
"""On slow hardware: fewer cells, but of more rounds. Processors that have nothing to do serve all acceptances side by
side."""
PLAIN_EVERY, SLOW_PLAIN_EVERY = 1, 8
"""Turns of the cells; plain decoding has no luck."""
CPU_ANSWERS, CPU_DRAFT_TOKENS = 4, 5
"""Answers over which processor time is counted, and their K."""
ANSWER_TOKENS = 512
"""Short enough that the context costs next to nothing."""
SLOW_ANSWER_TOKENS = 128
"""On slow hardware: no cell has more rounds than it needs."""
COLUMNS = {
    "time_scale": "x",
    "acceptance": "a",
    "K": "K",
    "speed_up": "speed-up",
    "formula": "formula",
    "ratio": "ratio",
    "tokens_per_round": "tokens",
    "expected": "formula",
    "round_ms": "round ms",
    "steps_ms": "formula",
    "published": "articles",
}


@dataclass(slots=True)
class Cell:
    """One K at one acceptance."""

    num_draft_tokens: int
    num_rounds_wanted: int
    span: Span = field(default_factory=Span)

    @property
    def is_done(self) -> bool:
        return self.span.num_rounds >= self.num_rounds_wanted


@dataclass(slots=True)
class Measured:
    """All of one acceptance."""

    plain: Span
    cells: list[Cell]
    cpu_ms: dict[str, float] = field(default_factory=dict)
    """Processor time that each process takes for a round."""


def run_grid(report: Report, *, quick: bool, time_scale: float = 1.0) -> None:
    """A row per cell, and checks over all of them. time_scale: how slow the hardware is, in everything."""
    rates, depths, noise = tuple(PUBLISHED), tuple(range(1, 9)), NOISE
    if time_scale > 1:
        depths, noise = SLOW_DEPTHS, SLOW_NOISE
    if quick:
        rates, depths, noise = QUICK_RATES, QUICK_DEPTHS, QUICK_NOISE
    report.columns = COLUMNS
    measured: dict[float, Measured] = {}
    for together in [rates] if time_scale > 1 else [(rate,) for rate in rates]:
        measured |= asyncio.run(_measure_together(together, depths, noise, time_scale))
    rows = [_row(rate, one.plain, cell, time_scale) for rate, one in measured.items() for cell in one.cells]
    overhead_ms = statistics.median(row["overhead_median_ms"] for row in rows)
    for row in rows:
        row["formula_with_overhead"] = formula(row["acceptance"], row["K"], overhead_ms / 1e3 / time_scale)
        row["ratio_with_overhead"] = row["speed_up"] / row["formula_with_overhead"]
        report.row(**row)
        if row["K"] == depths[-1] and len(depths) > len(SLOW_DEPTHS):
            rate = row["acceptance"]
            best = max(other["speed_up"] for other in rows if other["acceptance"] == rate)
            report.row(part="grid", acceptance=rate, K="best", speed_up=best, published=PUBLISHED[rate])
    _check(report, rows, time_scale, overhead_ms)
    noises = [
        expected_noise(rate, cell.num_draft_tokens) / math.sqrt(cell.span.num_rounds)
        for rate, one in measured.items()
        for cell in one.cells
    ]
    name = f"grid x{time_scale:g}: largest standard deviation from the draw of acceptances"
    report.check(name, max(noises), noise, "of a speed-up")
    names = next(iter(measured.values())).cpu_ms
    cpu_ms = {name: statistics.median(one.cpu_ms[name] for one in measured.values()) for name in names}
    report.conditions[f"processor time of a round (K = {CPU_DRAFT_TOKENS}, x{time_scale:g}) in ms"] = ", ".join(
        f"{name} {value:.2f}" for name, value in cpu_ms.items()
    )


def _check(report: Report, rows: list[dict[str, float]], time_scale: float, overhead_ms: float) -> None:
    """The deviations from the formula, for one table."""
    name = f"grid x{time_scale:g}: largest deviation of a cell's speed-up from the formula"
    for key, added in (
        ("ratio", ""),
        ("ratio_at_expected", ", at the formula's tokens a round"),
        ("ratio_with_overhead", f", with a round's overhead, {overhead_ms:.2f} ms in all cells"),
    ):
        report.check(name + added, max(abs(row[key] - 1) for row in rows), TOLERANCE, "of it")
    report.conditions[f"grid x{time_scale:g}"] = (
        f"a round costs {overhead_ms:.2f} ms more than its steps (median of the cells' medians): two gRPC round trips "
        "and the processes between them. The articles name no K: compare them with the best of the row's K"
    )


def formula(rate: float, num_draft_tokens: int, overhead_s: float = 0.0) -> float:
    """Speed-up over plain decoding (Leviathan et al. 2211.17192, theorem 3.8).

    overhead_s: of a round, besides its steps.
    """
    profile = load_profile(PROFILE)
    verify_s, draft_s = profile.target.step_s(1, 1), profile.draft.step_s(1, 1)
    round_s = num_draft_tokens * draft_s + verify_s + overhead_s
    return expected_tokens_by_position((rate,), num_draft_tokens) * verify_s / round_s


def expected_noise(rate: float, num_draft_tokens: int) -> float:
    """Standard deviation of a round's tokens over their mean."""
    tails = [rate**accepted for accepted in range(num_draft_tokens + 1)]  # P(tokens > accepted)
    mean = sum(tails)
    square = sum((2 * accepted + 1) * tail for accepted, tail in enumerate(tails))
    return math.sqrt(square - mean**2) / mean


def num_rounds_for(rate: float, num_draft_tokens: int, noise: float) -> int:
    """Rounds after which the mean of their tokens has so small a standard deviation, as a share of it."""
    return math.ceil((expected_noise(rate, num_draft_tokens) / noise) ** 2)


async def _measure_together(
    rates: tuple[float, ...], depths: tuple[int, ...], noise: float, time_scale: float
) -> dict[float, Measured]:
    """Each acceptance on a stack of its own, side by side; the processor time one after another."""
    num_tokens = SLOW_ANSWER_TOKENS if time_scale > 1 else ANSWER_TOKENS
    plain_every = SLOW_PLAIN_EVERY if time_scale > 1 else PLAIN_EVERY
    async with contextlib.AsyncExitStack() as opened:
        stacks = {
            rate: opened.enter_context(LocalStack(emulated_config(rate, draft_ahead="off", time_scale=time_scale)))
            for rate in rates
        }
        clients = [Client(await opened.enter_async_context(connected(stack.address))) for stack in stacks.values()]
        every = await asyncio.gather(
            *(
                _measure(rate, client, depths, noise, num_tokens, plain_every)
                for rate, client in zip(rates, clients, strict=True)
            )
        )
        for one, stack, client in zip(every, stacks.values(), clients, strict=True):
            one.cpu_ms = await _cpu_ms(stack, client, num_tokens)
        return dict(zip(rates, every, strict=True))


async def _measure(
    rate: float, client: Client, depths: tuple[int, ...], noise: float, num_tokens: int, plain_every: int
) -> Measured:
    """Plain decoding and the cells, in turns."""
    cells = [Cell(depth, num_rounds_for(rate, depth, noise)) for depth in depths]
    plain = Span()
    await client.ask("on", 64)
    for turn in itertools.count():
        if all(cell.is_done for cell in cells):
            break
        for cell in cells:
            if not cell.is_done:
                cell.span += await _ask(client, "on", num_tokens, cell.num_draft_tokens)
        if turn % plain_every == 0:
            plain += await _ask(client, "off", num_tokens)
    return Measured(plain, cells)


async def _cpu_ms(stack: LocalStack, client: Client, num_tokens: int) -> dict[str, float]:
    before, span = cpu_times_s(stack), Span()
    for _ in range(CPU_ANSWERS):
        span += await _ask(client, "on", num_tokens, CPU_DRAFT_TOKENS)
    after = cpu_times_s(stack)
    return {name: 1e3 * (after[name] - before[name]) / span.num_rounds for name in before}


async def _ask(client: Client, mode: str, num_tokens: int, num_draft_tokens: int = 0) -> Span:
    answer = await client.ask(mode, num_tokens, num_speculative_tokens=num_draft_tokens or None)
    # Towards the end there is less room for drafts.
    return span_of(answer, num_draft_tokens + 1)


def _row(rate: float, plain: Span, cell: Cell, time_scale: float) -> dict[str, float]:
    depth, span = cell.num_draft_tokens, cell.span
    profile = load_profile(PROFILE)
    steps_s = time_scale * (depth * profile.draft.step_s(1, 1) + profile.target.step_s(1, depth + 1))
    speed_up = span.tokens_per_s / plain.tokens_per_s
    realised = span.num_tokens / span.num_rounds
    return {
        "part": "grid",
        "time_scale": time_scale,
        "acceptance": rate,
        "K": depth,
        "speed_up": speed_up,
        "formula": formula(rate, depth),
        "ratio": speed_up / formula(rate, depth),
        "tokens_per_round": realised,
        "expected": expected_tokens_by_position((rate,), depth),
        "ratio_at_expected": speed_up / formula(rate, depth) * expected_tokens_by_position((rate,), depth) / realised,
        "round_ms": 1e3 * span.elapsed_s / span.num_rounds,
        "steps_ms": 1e3 * steps_s,
        "overhead_ms": 1e3 * (span.elapsed_s / span.num_rounds - steps_s),
        "overhead_median_ms": 1e3 * (statistics.median(span.rounds_s) - steps_s),
        "plain_tokens_per_s": plain.tokens_per_s,
        "rounds": span.num_rounds,
    }

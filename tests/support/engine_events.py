"""Prompts for an engine's core, running it to the end of its work, and what its events say."""

import itertools
import random
from collections.abc import Callable, Sequence

from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.core.scheduler import LONG_IDLE_NS
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.messages import CloseSequence, Decode, Event, OpenSequence, SequenceError, Verdict
from pilotfish.models.decoder import Decoder
from pilotfish.types import SamplingParams, TreeRequest

MakeCore = Callable[..., EngineCore]
MakeDrafter = Callable[[Decoder], InTargetDrafter]
GreedyText = Callable[[Sequence[int], int], list[int]]
"""A greedy continuation of a text, of so many tokens."""


TICK_NS = LONG_IDLE_NS // 100
"""Of a clock that every look moves on: an engine that waits for blocks need only be looked at."""


def ticking_clock() -> Callable[[], int]:
    return itertools.count(TICK_NS, TICK_NS).__next__


def settle(core: Engine) -> list[Event]:
    """Step until nothing is left to do; all events. By a ticking clock, until holders were idle for long as well."""
    events: list[Event] = []
    num_looks = 0
    for _ in range(5000):
        new = core.step() if core.has_work else []
        events.extend(new)
        num_looks = 0 if new else num_looks + 1
        if not core.has_work and (not core.is_waiting or num_looks > 2 * LONG_IDLE_NS // TICK_NS):
            return events
    raise AssertionError("the engine does not come to rest")


def verdicts_of(events: Sequence[Event], sequence_id: int | None = None) -> list[Verdict]:
    """Of one sequence, or of all."""
    verdicts = (event for event in events if isinstance(event, Verdict))
    return [verdict for verdict in verdicts if sequence_id in (None, verdict.sequence_id)]


def text_of(events: Sequence[Event], sequence_id: int = 1) -> list[int]:
    """What was decided for a sequence."""
    return [token_id for verdict in verdicts_of(events, sequence_id) for token_id in verdict.token_ids]


def errors_of(events: Sequence[Event]) -> list[SequenceError]:
    return [event for event in events if isinstance(event, SequenceError)]


async def received_text(engine: ProcessEngine, num_tokens: int) -> list[int]:
    """At least so many tokens, as they are decided for the only sequence of an engine in another process."""
    tokens: list[int] = []
    while len(tokens) < num_tokens:
        tokens += [token_id for verdict in verdicts_of(await engine.receive()) for token_id in verdict.token_ids]
    return tokens


def decode(
    core: EngineCore,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams,
    num_tokens: int,
    num_draft_tokens: int,
    tree: TreeRequest | None = None,
) -> tuple[list[list[int]], list[Verdict]]:
    """The outputs of all prompts, decoded side by side with a drafter in the target, and every verdict."""
    for sequence_id, prompt in enumerate(prompts):
        core.submit(OpenSequence(sequence_id, tuple(prompt), sampling))
        core.submit(Decode(sequence_id, len(prompt), num_tokens, num_draft_tokens, tree=tree))
    events = settle(core)
    assert not errors_of(events)
    outputs: list[list[int]] = [[] for _ in prompts]
    for verdict in verdicts_of(events):
        output = outputs[verdict.sequence_id]
        assert verdict.base_length == len(prompts[verdict.sequence_id]) + len(output)
        assert verdict.num_accepted_tokens <= verdict.depth <= num_draft_tokens
        assert verdict.num_draft_tokens <= (num_draft_tokens if tree is None else tree.max_nodes)
        output.extend(verdict.token_ids)
    for sequence_id in range(len(prompts)):
        core.submit(CloseSequence(sequence_id))
    return outputs, verdicts_of(events)


def prompts(seed: int, count: int) -> list[list[int]]:
    """Of a vocabulary of 64; some share a prefix of several blocks."""
    chance = random.Random(seed)
    head = [chance.randrange(64) for _ in range(37)]
    return [
        [*head[: chance.choice((0, 20, 37))], *(chance.randrange(64) for _ in range(chance.randint(1, 30)))]
        for _ in range(count)
    ]

"""What does the guard cost a request with a grammar: one that is new, one that is known, and the first of all?

Held against what was done before there was a guard: compiling without a vocabulary, on a thread of the orchestrator.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import checkout  # noqa: F401  # finds tests.support
from llguidance import LLMatcher
from report import Report, parser

from orchestrator.requests.grammar_check import GrammarCheck
from pilotfish.config import load_config
from pilotfish.models.pull import pull_model
from pilotfish.models.tokenizer import Tokenizer
from pilotfish.structured.grammar import engine_grammar
from pilotfish.structured.guard import GrammarGuard
from pilotfish.types import Grammar, GrammarKind
from tests.support.json_schemas import random_object_schema

NUM_SCHEMAS, QUICK_SCHEMAS = 100, 20
MAX_NEW_MS = 50.0
"""Beside an answer of a second."""


async def time_ms(check: Callable[[Grammar], Awaitable[object]], grammars: Sequence[Grammar]) -> list[float]:
    times = []
    for grammar in grammars:
        start_s = time.perf_counter()
        await check(grammar)
        times.append(1e3 * (time.perf_counter() - start_s))
    return times


async def unguarded(grammar: Grammar) -> object:
    """As it was."""
    return await asyncio.to_thread(LLMatcher.validate_grammar_with_warnings, engine_grammar(grammar))


async def measure(report: Report, grammars: Sequence[Grammar]) -> None:
    config = load_config()
    tokenizer = Tokenizer.load(pull_model(config.target.model, config.cache_dir))
    check = GrammarCheck(GrammarGuard(tokenizer.folder, tokenizer.vocab_size, tokenizer.eos_token_ids))
    arms = {
        "the first of all": await time_ms(check.check, grammars[:1]),
        "new": await time_ms(check.check, grammars[1:]),
        "known": await time_ms(check.check, grammars),
        "without a guard": await time_ms(unguarded, grammars),
    }
    check.close()
    for arm, times in arms.items():
        report.row(grammar=arm, median_ms=statistics.median(times), worst_ms=max(times))
    report.check("a new grammar", statistics.median(arms["new"]), MAX_NEW_MS, "ms")
    report.check("a known grammar", statistics.median(arms["known"]), 0.1, "ms")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    count = QUICK_SCHEMAS if options.quick else NUM_SCHEMAS
    schemas = [json.dumps(random_object_schema(seed)) for seed in range(count)]
    report = Report("What does the guard cost?", {"schemas": len(schemas)})
    asyncio.run(measure(report, [Grammar(GrammarKind.JSON_SCHEMA, schema) for schema in dict.fromkeys(schemas)]))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

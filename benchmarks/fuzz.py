"""Does any grammar get an answer that is not documented, kill a process, or hang or fill one?

Random JSON schemas, regular expressions and Lark grammars (random_grammars.py) go over HTTP to the services with the
default model: through the guard, the target's compiler and the masks of an answer. A request is made from its number
alone, so that `--replay SEED:NUMBER` sends it again. The other fields of requests are tests/integration/openai's
(Schemathesis), frames to replicas tests/integration/fuzz's (Hypothesis).
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
from random_grammars import random_grammar
from report import Report, parser

from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.types import GrammarKind

NUM_REQUESTS, QUICK_REQUESTS = 20_000, 300
HANG_S = 60.0
"""A request that takes longer hangs. Far above what any takes, on a machine that does five things at once."""
MAX_GROWTH_MB = 200.0
"""Of a process, from a tenth of the requests to the end: caches of grammars and prefixes are bounded."""
SERVICES = ("orchestrator", "target_service", "draft_service")
HERE = "the schema"
OVERRIDES = ("target.engine.max_sequences=4", "orchestrator.max_concurrent_requests=8")


@dataclass
class Tally:
    """What became of the requests."""

    ends: Counter[str] = field(default_factory=Counter)
    crashes: dict[str, str] = field(default_factory=dict)
    """What went wrong, and the first request that showed it."""
    slowest_s: float = 0.0
    slowest: str = ""


class Services:
    """A running stack, what its processes print that they should not, and what memory they take."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.stack = LocalStack(load_config(overrides=OVERRIDES), on_line=self._on_line)

    def processes(self) -> dict[str, psutil.Process]:
        """Each service, and the engine workers behind them."""
        fronts = {name: psutil.Process(self.stack.pid(name)) for name in SERVICES}
        workers = {
            f"{name}'s worker": child
            for name, front in fronts.items()
            for child in front.children()
            if "engine.worker" in " ".join(child.cmdline())
        }
        return fronts | workers

    def _on_line(self, name: str, line: str) -> None:
        if " ERROR " in line or "Traceback" in line:
            self.complaints.append(f"{name}: {line}")


def random_body(rng: random.Random) -> str:
    """A chat whose answer must follow a grammar, named in one of the places that take one."""
    grammar = random_grammar(rng)
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": rng.choice([1, 4, 12])}
    body |= {"stream": rng.random() < 0.3, "temperature": rng.choice([0, 1]), "seed": rng.randrange(9)}
    if grammar.kind is not GrammarKind.JSON_SCHEMA:
        name = "regex" if grammar.kind is GrammarKind.REGEX else "grammar"
        return json.dumps({**body, "structured_outputs": {name: grammar.text}})
    function = {"name": "look_up", "parameters": HERE}
    places: list[dict[str, Any]] = [
        {"structured_outputs": {"json": HERE}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": HERE}}},
        {"tools": [{"type": "function", "function": function}], "tool_choice": "required"},
    ]
    # As text: some are nested deeper than Python writes.
    return json.dumps(body | rng.choice(places)).replace(json.dumps(HERE), grammar.text)


async def send(client: httpx.AsyncClient, body: str) -> str:
    """What kind of answer came. Raises AssertionError or ValueError for one that is not documented."""
    content = body.encode("utf-8", "surrogatepass")
    async with asyncio.timeout(HANG_S):
        response = await client.post("/v1/chat/completions", content=content, timeout=None)
    if response.status_code >= 500 or "internal_error" in response.text:
        raise AssertionError(f"status {response.status_code}: {response.text[:200]}")
    return f"{response.status_code} {_message(response)}"


async def fuzz(services: Services, seed: int, numbers: Sequence[int], *, until_s: float, tally: Tally) -> None:
    """Send the requests, one after another, until then on time.monotonic()."""
    async with httpx.AsyncClient(base_url=services.stack.http_url) as client:
        for number in numbers:
            start_s = time.monotonic()
            if start_s > until_s:
                return
            services.complaints.clear()
            try:
                tally.ends[_kind(await send(client, random_body(random.Random(f"{seed}:{number}"))))] += 1
                problems = services.complaints[:1]
            except Exception as error:
                problems = [f"{type(error).__name__}: {error}", *services.complaints[:1]]
            for problem in problems:
                tally.crashes.setdefault(_kind(problem), f"{seed}:{number}: {problem}")
            elapsed_s = time.monotonic() - start_s
            if elapsed_s > tally.slowest_s:
                tally.slowest_s, tally.slowest = elapsed_s, f"{seed}:{number}"


def run(report: Report, seed: int, count: int, minutes: float | None) -> None:
    """Rows: what came of it, then each process."""
    services, tally = Services(), Tally()
    until_s = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    with services.stack, asyncio.Runner() as runner:
        first, rest = range(count // 10), range(count // 10, count)
        runner.run(fuzz(services, seed, first, until_s=until_s, tally=tally))
        processes = services.processes()
        before_mb = {name: process.memory_info().rss / 1e6 for name, process in processes.items()}
        runner.run(fuzz(services, seed, rest, until_s=until_s, tally=tally))
        is_alive = {name: process.is_running() for name, process in processes.items()}
        grown_mb = {
            name: process.memory_info().rss / 1e6 - before_mb[name]
            for name, process in processes.items()
            if is_alive[name]
        }
    report.row(what="requests", found=tally.ends.total(), kinds=len(tally.ends), ends=dict(tally.ends.most_common(60)))
    report.row(what=f"slowest ({tally.slowest}), s", found=round(tally.slowest_s, 2))
    for name, grown in grown_mb.items():
        report.row(what=f"{name} has grown by, MB", found=round(grown))
    for problem in tally.crashes.values():
        report.row(what="problem", found=problem)
    report.check("undocumented answers, and errors in logs", len(tally.crashes), 0, "kinds", "equal to")
    report.check("processes that have ended", sum(not alive for alive in is_alive.values()), 0, "", "equal to")
    report.check("largest growth of a process", max(grown_mb.values(), default=0.0), MAX_GROWTH_MB, "MB")


def replay(text: str) -> None:
    """Send one request again, and print it with what became of it."""
    body, services = random_body(random.Random(text)), Services()
    with services.stack, asyncio.Runner() as runner:
        print(body, flush=True)

        async def once() -> None:
            async with httpx.AsyncClient(base_url=services.stack.http_url) as client:
                print(await send(client, body))

        runner.run(once())
    print("\n".join(services.complaints))


def _message(response: httpx.Response) -> str:
    """What kind of body it has. Raises ValueError for JSON that is none."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
        if events[-1] != "[DONE]":
            raise ValueError(f"a stream ends with {events[-1][:100]}")
        errors = [json.loads(event)["error"]["message"] for event in events[:-1] if event.startswith('{"error"')]
        return f"stream {errors}"
    body = json.loads(response.text)
    return str(body["error"]["message"]) if "error" in body else "JSON"


def _kind(text: str) -> str:
    """Without numbers and quoted words: what is new about it."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`|-?\d[\d.,e+-]*", "_", text)[:160]


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--minutes", type=float, help="stop after so many")
    options_parser.add_argument("--seed", type=int, help="default: another one each time")
    options_parser.add_argument("--replay", metavar="SEED:NUMBER", help="send one request again")
    options = options_parser.parse_args(arguments)
    if options.replay:
        replay(options.replay)
        return 0
    seed = time.time_ns() % 2**32 if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    report = Report("Does any grammar crash, hang or fill what it reaches?", {"seed": seed})
    report.columns = {"what": "what", "found": "found", "kinds": "kinds"}
    run(report, seed, QUICK_REQUESTS if options.quick else NUM_REQUESTS, options.minutes)
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

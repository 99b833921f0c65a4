"""What is a drafter worth that learns from the traffic? A stream of four kinds of requests, one kind after the other.

Two stacks answer each request in turn, no prompt comes twice: one has the static head, the other learns, with its
trainer on the same cores. In the last quarter, whose speeds are compared, the trainer runs only while the stack that
learns answers, and in every other request not at all, as if it ran elsewhere. At the end the first kind comes again.
"""

import asyncio
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from learning_stream.minutes import Asked, acceptance_length, rate_ratio
from learning_stream.plot import svg
from learning_stream.prompts import KINDS, Kind
from schemas.answers import FormAnswer, stream
from shared.report import Report, parser

from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.learning.versions import Versions

MODEL, MAX_TOKENS, SEED = "smollm2-135m-instruct", 128, 11
SETTINGS = ("draft.num_replicas=0",)
LEARNING = ("draft.learning.min_tokens=2048", "draft.learning.learning_rate=2e-4")
"""A kind comes for some minutes only, at some fifty tokens a second: candidates are small, and learn fast."""
LAST_SHARE = 0.25
"""Of the stream: five minutes of twenty."""


class Stacks:
    """The one with the static head, and the one that learns."""

    def __init__(self, clients: Sequence[httpx.AsyncClient], trainer_pid: int) -> None:
        self._clients = clients
        self._trainer_pid = trainer_pid

    async def ask(self, kind: Kind, prompt: str, *, trains: tuple[bool, bool]) -> list[FormAnswer]:
        """Both answers, one after the other. trains: whether the trainer runs meanwhile."""
        body: dict[str, Any] = {
            "messages": kind.messages(prompt),
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "speculation": {"return_tokens": True},
        }
        answers = []
        for client, runs in zip(self._clients, trains, strict=True):
            os.kill(self._trainer_pid, signal.SIGCONT if runs else signal.SIGSTOP)
            answers.append(await stream(client, body))
        return answers


@asynccontextmanager
async def started(folder: Path, settings: Sequence[str]) -> AsyncIterator[Stacks]:
    learning = ("draft.learning.enabled=true", f"draft.learning.folder={folder}", *LEARNING)
    async with AsyncExitStack() as exits:
        clients, stacks = [], []
        for overrides in ((), learning):
            stack = LocalStack(load_config(overrides=[*SETTINGS, *overrides, *settings]), on_line=tell)
            await asyncio.to_thread(stack.__enter__)
            exits.push_async_callback(asyncio.to_thread, stack.__exit__, None, None, None)
            client = httpx.AsyncClient(base_url=stack.http_url, timeout=600)
            clients.append(await exits.enter_async_context(client))
            stacks.append(stack)
        trainer_pid = stacks[1].pid("trainer")
        try:
            yield Stacks(clients, trainer_pid)
        finally:
            os.kill(trainer_pid, signal.SIGCONT)  # so that it can end


def tell(child: str, line: str) -> None:
    if child == "trainer":
        print(f"{child}: {line}", file=sys.stderr, flush=True)


async def measure(stacks: Stacks, minutes: float) -> tuple[list[Asked], int]:
    """What was asked, and how many requests failed."""
    kinds = [*KINDS, KINDS[0]]
    prompts = {kind.name: kind.prompts(SEED) for kind in KINDS}
    asked: list[Asked] = []
    num_failed, begun = 0, time.monotonic()
    for number in itertools.count():
        done = (time.monotonic() - begun) / 60 / minutes
        if done >= 1:
            return asked, num_failed
        phase = int(done * len(kinds))
        kind, is_last = kinds[phase], done >= 1 - LAST_SHARE
        is_paused = is_last and number % 2 == 1
        try:
            answers = await stacks.ask(kind, next(prompts[kind.name]), trains=(not is_last, not is_paused))
        except (httpx.HTTPError, ValueError) as error:
            print(f"failed: {error}", file=sys.stderr, flush=True)
            num_failed += 1
            continue
        asked.append(counted(answers, int(done * minutes), phase, kind.name, is_paused))
    raise AssertionError("the stream has no end but by time")


def counted(answers: Sequence[FormAnswer], minute: int, phase: int, kind: str, is_paused: bool) -> Asked:
    def pair(name: str) -> tuple[int, int]:
        return answers[0].report[name], answers[1].report[name]

    return Asked(
        minute=minute,
        phase=phase,
        kind=kind,
        is_paused=is_paused,
        num_tokens=(len(answers[0].token_ids), len(answers[1].token_ids)),
        num_rounds=pair("num_rounds"),
        num_accepted=pair("num_accepted_tokens"),
        seconds=(answers[0].total_s - answers[0].first_s, answers[1].total_s - answers[1].first_s),
        differs=answers[0].token_ids != answers[1].token_ids,
        version=answers[1].report.get("drafter_version", 0),
    )


def add_rows(report: Report, asked: Sequence[Asked]) -> None:
    for (minute, kind), group in itertools.groupby(asked, key=lambda each: (each.minute, each.kind)):
        each = list(group)
        off, on = acceptance_length(each, 0), acceptance_length(each, 1)
        report.row(
            minute=minute,
            kind=kind,
            requests=len(each),
            length_off=round(off, 3),
            length_on=round(on, 3),
            gain=round(on / off, 3) if off else 0.0,
            rate_over_off=round(rate_ratio(each), 3),
            version=each[-1].version,
        )


def add_checks(report: Report, asked: Sequence[Asked], num_failed: int, minutes: float) -> None:
    last = [each for each in asked if each.minute >= minutes * (1 - LAST_SHARE)]
    beside = rate_ratio([each for each in last if not each.is_paused])
    report.check("tokens/s of the last quarter over the static head, trainer beside it", beside, 1.15, kind="at least")
    paused = rate_ratio([each for each in last if each.is_paused])
    report.check("the same, trainer paused", paused, 1.25, kind="at least")
    again = [each for each in asked if each.phase == len(KINDS)]
    ratio = acceptance_length(again, 1) / acceptance_length(again, 0) if again else 0.0
    report.check(f"tokens a round of {KINDS[0].name} again, over the static head", ratio, 0.98, kind="at least")
    report.check("texts that differ", sum(each.differs for each in asked), 0, "texts", "equal to")
    report.check("failed requests", num_failed, 0, "requests", "equal to")


async def run(options: Any, report: Report) -> None:
    minutes = options.minutes or (5.0 if options.quick else 20.0)
    with tempfile.TemporaryDirectory(prefix="pilotfish-learning-") as name:
        folder, begun = Path(name), 0.0
        async with started(folder, options.set) as stacks:
            begun = time.time()
            asked, num_failed = await measure(stacks, minutes)
        versions = Versions(folder)
        history = versions.history()
        report.conditions["versions"] = len(versions.numbers())
    add_rows(report, asked)
    add_checks(report, asked, num_failed, minutes)
    report.conditions |= {
        "swaps": [
            {
                "minute": round((each.at - begun) / 60, 2),
                "from": each.from_version,
                "to": each.to_version,
                "why": each.reason,
            }
            for each in history
        ]
    }
    if options.plot:
        lengths = [(row["kind"], row["length_off"], row["length_on"]) for row in report.rows]
        options.plot.write_text(svg(lengths, [(each.at - begun) / 60 for each in history]), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    learning_parser = parser(__doc__)
    learning_parser.add_argument("--minutes", type=float, help="default 20, quick 5")
    learning_parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="tokens a round by minute")
    learning_parser.add_argument("--set", action="append", default=[], metavar="section.key=value", help="for both")
    options = learning_parser.parse_args(arguments)
    report = Report(
        "What is a drafter worth that learns from the traffic?",
        {
            "model": MODEL,
            "max_tokens": MAX_TOKENS,
            "sampling": "greedy",
            "settings": [*SETTINGS, *LEARNING, *options.set],
        },
    )
    report.columns = {
        "minute": "minute",
        "kind": "kind",
        "requests": "requests",
        "length_off": "static",
        "length_on": "learning",
        "gain": "x",
        "rate_over_off": "tokens/s x",
        "version": "version",
    }
    asyncio.run(run(options, report))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

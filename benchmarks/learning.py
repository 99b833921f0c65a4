"""What is a drafter worth that learns from the traffic? A stream of four kinds of requests that take turns.

Each kind comes four times, each time for a sixteenth of the stream, so that the last quarter, whose speeds are
compared, holds all of them, and each was there before: what was learned is to show, and what was forgotten. Were it the
first kind alone, which the static head was trained on, there would be nothing to gain.

Two stacks answer each request one after the other, now one first, now the other, and no prompt comes twice: one has the
static head, the other learns, with its trainer on the same cores. In the last quarter the trainer runs only while the
stack that learns answers, and in every other request not at all, as if it ran elsewhere.
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
from statistics import fmean
from typing import Any

import httpx
from learning_stream.minutes import Asked, acceptance_length, drafted_ratio, rate_ratio
from learning_stream.plot import Point, svg
from learning_stream.prompts import KINDS, Kind
from schemas.answers import FormAnswer, stream
from shared.report import Report, parser

from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from pilotfish.learning.versions import Versions

MODEL, MAX_TOKENS, SEED = "smollm2-135m-instruct", 128, 11
SETTINGS = ("draft.num_replicas=0",)
LEARNING = ("draft.learning.min_tokens=4096",)
"""Half the default: a kind stays for little more than a minute."""
NUM_TURNS = 4
"""Turns of the kinds. The last one is compared: five minutes of twenty."""


class Stacks:
    """The one with the static head, and the one that learns."""

    def __init__(self, clients: Sequence[httpx.AsyncClient], trainer_pid: int) -> None:
        self._clients = clients
        self._trainer_pid = trainer_pid

    async def ask(self, kind: Kind, prompt: str, *, trains: tuple[bool, bool], first: int) -> list[FormAnswer]:
        """Both answers, one after the other. trains: whether the trainer runs meanwhile. first: who begins."""
        body: dict[str, Any] = {
            "messages": kind.messages(prompt),
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "speculation": {"return_tokens": True},
        }
        answers: dict[int, FormAnswer] = {}
        for arm in (first, 1 - first):
            os.kill(self._trainer_pid, signal.SIGCONT if trains[arm] else signal.SIGSTOP)
            answers[arm] = await stream(self._clients[arm], body)
        return [answers[0], answers[1]]

    def trainer_s(self) -> float:
        """Processor time that the trainer has had."""
        fields = Path(f"/proc/{self._trainer_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    prompts = {kind.name: kind.prompts(SEED) for kind in KINDS}
    asked: list[Asked] = []
    num_failed, begun = 0, time.monotonic()
    for number in itertools.count():
        done = (time.monotonic() - begun) / 60 / minutes
        if done >= 1:
            return asked, num_failed
        turn, place = divmod(int(done * NUM_TURNS * len(KINDS)), len(KINDS))
        kind, is_last = KINDS[place], turn == NUM_TURNS - 1
        is_paused = is_last and number % 2 == 1
        try:
            trains = not is_last, not is_paused
            answers = await stacks.ask(kind, next(prompts[kind.name]), trains=trains, first=number // 2 % 2)
        except (httpx.HTTPError, ValueError) as error:
            print(f"failed: {error}", file=sys.stderr, flush=True)
            num_failed += 1
            continue
        asked.append(counted(answers, done * minutes, turn, kind.name, is_paused))
    raise AssertionError("the stream has no end but by time")


def counted(answers: Sequence[FormAnswer], minute: float, turn: int, kind: str, is_paused: bool) -> Asked:
    def pair(name: str) -> tuple[int, int]:
        return answers[0].report[name], answers[1].report[name]

    return Asked(
        minute=minute,
        turn=turn,
        kind=kind,
        is_paused=is_paused,
        num_tokens=(len(answers[0].token_ids), len(answers[1].token_ids)),
        num_rounds=pair("num_rounds"),
        num_accepted=pair("num_accepted_tokens"),
        num_drafted=pair("num_draft_tokens"),
        seconds=(answers[0].total_s - answers[0].first_s, answers[1].total_s - answers[1].first_s),
        differs=answers[0].token_ids != answers[1].token_ids,
        version=answers[1].report.get("drafter_version", 0),
    )


def add_rows(report: Report, asked: Sequence[Asked]) -> None:
    for (minute, kind), group in itertools.groupby(asked, key=lambda each: (int(each.minute), each.kind)):
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


def add_checks(report: Report, asked: Sequence[Asked], num_failed: int) -> None:
    last = [each for each in asked if each.turn == NUM_TURNS - 1]
    beside = rate_ratio([each for each in last if not each.is_paused])
    report.check("tokens/s of the last quarter over the static head, trainer beside it", beside, 1.15, kind="at least")
    paused = rate_ratio([each for each in last if each.is_paused])
    report.check("the same, trainer paused", paused, 1.25, kind="at least")
    again = [each for each in last if each.kind == KINDS[0].name]
    ratio = acceptance_length(again, 1) / acceptance_length(again, 0) if again else 0.0
    report.check(f"tokens a round of {KINDS[0].name} again, over the static head", ratio, 0.98, kind="at least")
    report.check("texts that differ", sum(each.differs for each in asked), 0, "texts", "equal to")
    report.check("failed requests", num_failed, 0, "requests", "equal to")


def by_kind(asked: Sequence[Asked]) -> dict[str, dict[str, float]]:
    """Tokens and draft tokens a round over the static head's, and tokens/s with the trainer beside it and paused."""
    found = {}
    for kind in KINDS:
        own = [each for each in asked if each.kind == kind.name]
        off = acceptance_length(own, 0)
        found[kind.name] = {
            "tokens a round": round(acceptance_length(own, 1) / off, 3) if off else 0.0,
            "draft tokens a round": round(drafted_ratio(own), 3),
            "tokens/s": round(rate_ratio([each for each in own if not each.is_paused]), 3),
            "tokens/s, paused": round(rate_ratio([each for each in own if each.is_paused]), 3),
        }
    return found


def points(asked: Sequence[Asked]) -> list[Point]:
    """One for each kind of a minute."""
    found = []
    for (_, kind), group in itertools.groupby(asked, key=lambda each: (int(each.minute), each.kind)):
        each = list(group)
        at = fmean(one.minute for one in each)
        found.append(Point(at, kind, acceptance_length(each, 0), acceptance_length(each, 1)))
    return found


async def run(options: Any, report: Report) -> None:
    minutes = options.minutes or (5.0 if options.quick else 20.0)
    with tempfile.TemporaryDirectory(prefix="pilotfish-learning-") as name:
        folder, begun = Path(name), 0.0
        async with started(folder, options.set) as stacks:
            begun = time.time()
            asked, num_failed = await measure(stacks, minutes)
            report.conditions["processor seconds of the trainer"] = round(stacks.trainer_s(), 1)
        versions = Versions(folder)
        history = versions.history()
        report.conditions["versions"] = len(versions.numbers())
    add_rows(report, asked)
    add_checks(report, asked, num_failed)
    report.conditions |= {
        "last quarter": by_kind([each for each in asked if each.turn == NUM_TURNS - 1]),
        "swaps": [
            {
                "minute": round((each.at - begun) / 60, 2),
                "from": each.from_version,
                "to": each.to_version,
                "why": each.reason,
            }
            for each in history
        ],
    }
    if options.plot:
        swaps = [(each.at - begun) / 60 for each in history]
        options.plot.write_text(svg(points(asked), swaps, minutes), encoding="utf-8")


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

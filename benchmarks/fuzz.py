"""Does any input get an answer that is not documented, kill a process, or hang one?

Generated and mutated input, surface by surface. What shows something new is kept in a folder and mutated further, in
later runs, too; an input that crashes stays there, and the command that runs it again is printed.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fuzz.answering import AnsweringSurface
from fuzz.bodies import BodiesSurface
from fuzz.compiling import CompilingSurface
from fuzz.replica import ReplicaSurface
from fuzz.replies import RepliesSurface
from fuzz.sessions import SessionsSurface
from fuzz.surface import Corpus, Surface, Tally, fuzz, replay
from shared.report import Report, parser

MAX_DATA_BYTES = 4 << 30
"""What asks for more is a crash, and takes nothing from others on the machine."""
QUICK = 100
"""So many times fewer inputs."""


def surfaces() -> list[tuple[Surface, int]]:
    """Each with what it is to count."""
    return [
        (ReplicaSurface("target"), 300_000),
        (ReplicaSurface("draft"), 200_000),
        (RepliesSurface("target"), 300_000),
        (RepliesSurface("draft"), 200_000),
        (SessionsSurface(), 4_000),
        (BodiesSurface(over_loopback=False), 100_000),
        (BodiesSurface(over_loopback=True), 5_000),
        (CompilingSurface(), 20_000),
        (AnsweringSurface(), 20_000),
    ]


def show(report: Report, tally: Tally, corpus: Path) -> None:
    report.row(
        surface=tally.name,
        count=tally.count,
        inputs=tally.num_inputs,
        kinds=len(tally.ends),
        crashes=tally.num_crashes,
        hangs=tally.num_hangs,
        slowest_s=round(tally.slowest_s, 2),
        grown_mb=round(tally.grown_mb),
        ends=dict(tally.ends.most_common(40)),
        crash_kinds=list(tally.crashes),
    )
    for what, path in tally.crashes.items():
        print(f"{tally.name}: {what}\n    python benchmarks/fuzz.py --corpus {corpus} --replay {path}", flush=True)
    report.check(f"{tally.name}: crashes", tally.num_crashes, 0, "", "equal to")


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--minutes", type=float, help="this long in all, instead of the counts asked for")
    options_parser.add_argument("--seed", type=int, help="default: another one each time")
    options_parser.add_argument("--surface", action="append", help="only this one; may be repeated")
    options_parser.add_argument(
        "--corpus", type=Path, default=Path("build/fuzz-corpus"), help="default build/fuzz-corpus"
    )
    options_parser.add_argument("--replay", type=Path, help="run one input again, and show what it raises")
    options = options_parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    logging.basicConfig(level=logging.ERROR, handlers=[logging.NullHandler()])
    if options.replay:
        surface = next(each for each, _ in surfaces() if each.name == options.replay.parent.name)
        print(asyncio.run(replay(surface, options.replay.read_bytes())))
        return 0
    seed = time.time_ns() % 2**32 if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    report = Report("Does any input crash or hang what it reaches?", {"seed": seed})
    report.columns = {name: name for name in ("surface", "count", "kinds", "crashes", "hangs", "slowest_s", "grown_mb")}
    chosen = [pair for pair in surfaces() if not options.surface or pair[0].name in options.surface]
    for surface, count in chosen:
        until_s = None if options.minutes is None else time.monotonic() + 60 * options.minutes / len(chosen)
        count = count // QUICK if options.quick else count
        corpus = Corpus(options.corpus / surface.name)
        tally = asyncio.run(fuzz(surface, seed, corpus, count=count, until_s=until_s))
        show(report, tally, options.corpus)
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

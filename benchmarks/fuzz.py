"""Does any input get an answer that is not documented, kill a process, or hang one?

Input that Hypothesis makes, surface by surface. One that crashes is made small and kept in a folder: the next run of
that surface begins with it.
"""

import asyncio
import logging
import os
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from fuzz.grammars import GrammarsSurface
from fuzz.hostile import ASKED, HOSTILE, measure_hostile
from fuzz.replica import ReplicaSurface, RepliesSurface
from fuzz.requests import GrpcSurface, HttpSurface
from fuzz.sessions import SessionsSurface
from fuzz.surface import Surface, fuzz
from hypothesis.errors import HypothesisWarning
from shared.report import Report, parser

MAX_DATA_BYTES = 4 << 30
"""What asks for more is a crash, and takes nothing from others on the machine."""
HOSTILE_SURFACE = "hostile"
"""Not inputs but clients, whose harm is measured: on a machine that does nothing else."""
QUICK = 100
"""A quick run has so many times fewer inputs."""


def surfaces() -> list[tuple[Surface, int]]:
    """Each with how many inputs it is to get."""
    return [
        (ReplicaSurface("target"), 20_000),
        (ReplicaSurface("draft"), 20_000),
        (RepliesSurface("target"), 20_000),
        (RepliesSurface("draft"), 20_000),
        (SessionsSurface(), 4_000),
        (HttpSurface(), 40_000),
        (GrpcSurface(), 20_000),
        (GrammarsSurface(), 20_000),
    ]


async def tell_hostile(report: Report, kinds: Sequence[str]) -> None:
    """Clients that mean harm beside one that does not."""
    report.columns = {name: name for name in ("clients", "lag_alone_ms", *ASKED, "attackers_cores")}
    async for row in measure_hostile(kinds):
        print(row, flush=True)
        report.row(**row)
        for name, most in ASKED.items():
            report.check(f"{row['clients']}: {name}", row[name], most, "", "at most")


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--minutes", type=float, help="this long in all, instead of the counts asked for")
    options_parser.add_argument("--seed", type=int, help="default: another one each time")
    names = [surface.name for surface, _ in surfaces()] + [HOSTILE_SURFACE]
    options_parser.add_argument("--surface", action="append", choices=names, help="only this one; may be repeated")
    options_parser.add_argument("--clients", action="append", choices=HOSTILE, help="only these hostile ones, likewise")
    options_parser.add_argument(
        "--corpus", type=Path, default=Path("build/fuzz-corpus"), help="default build/fuzz-corpus"
    )
    options = options_parser.parse_args(arguments)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it tells of every server that stops
    warnings.simplefilter("ignore", HypothesisWarning)  # of strategies that are long to write down
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    logging.basicConfig(level=logging.ERROR, handlers=[logging.NullHandler()])
    seed = time.time_ns() % 2**32 if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    report = Report("Does any input crash or hang what it reaches?", {"seed": seed})
    report.columns = {name: name for name in ("surface", "inputs", "kinds", "crashes", "slowest_s", "grown_mb")}
    chosen = [pair for pair in surfaces() if not options.surface or pair[0].name in options.surface]
    for surface, count in chosen:
        until_s = None if options.minutes is None else time.monotonic() + 60 * options.minutes / len(chosen)
        count = count // QUICK if options.quick else count
        tally = fuzz(surface, seed, options.corpus / surface.name, count=count, until_s=until_s)
        report.row(
            surface=surface.name,
            inputs=tally.num_inputs,
            kinds=len(tally.ends),
            crashes=len(tally.crashes),
            slowest_s=round(tally.slowest_s, 2),
            grown_mb=round(tally.peaks_mb[-1] - tally.peaks_mb[0]),
            ends=dict(tally.ends.most_common(40)),
            crash_kinds=list(tally.crashes),
        )
        for told in tally.crashes.values():
            print(f"{surface.name}:\n{told}\n", flush=True)
        report.check(f"{surface.name}: crashes", len(tally.crashes), 0, "", "equal to")
    if HOSTILE_SURFACE in (options.surface or ()):
        asyncio.run(tell_hostile(report, options.clients or tuple(HOSTILE)))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

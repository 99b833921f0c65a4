"""Does the whole stack do on an emulated 70B what theory says, and is speculation never slower?

The engines are emulated (profile a100-70b: verify 8 ms, draft 0.5 ms a token); gRPC, sessions, scheduling and the
controller are real. Parts: `grid` (speed-up over acceptance and K beside the formula), `never-slower` (auto against
always off, always on and no draft pool), `load-step` (from 1 to 64 concurrent requests and back), `ahead` (drafting
while the target verifies, also with a slow network). `--time-scale 10` has `grid` and `never-slower` on hardware that
is ten times as slow in everything, where this machine's processors hardly count; fewer cells and loads, of more time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

from emulation.ahead import run_ahead
from emulation.grid import run_grid
from emulation.load_step import run_load_step
from emulation.never_slower import run_never_slower
from emulation.stack import PROFILE
from shared.report import Report, parser

from pilotfish.emulation.profiles import load_profile

PARTS = {
    "grid": run_grid,
    "never-slower": run_never_slower,
    "load-step": run_load_step,
    "ahead": run_ahead,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="these parts")
    options_parser.add_argument(
        "--loads",
        nargs="+",
        type=_load,
        default=[],
        metavar="ACCEPTANCE:REQUESTS",
        help="these of never-slower, as 0.9:16",
    )
    options_parser.add_argument("--time-scale", type=float, default=1.0, help="of grid and never-slower (default 1)")
    options = options_parser.parse_args(arguments)
    slowed = {"time_scale": options.time_scale}
    parts = PARTS | {
        "grid": partial(run_grid, **slowed),
        "never-slower": partial(run_never_slower, loads=_by_acceptance(options.loads), **slowed),
    }
    question = "Does the stack do on an emulated 70B what theory says, and is speculation never slower?"
    conditions = {
        "engines": f"EMULATED {PROFILE}: {load_profile(PROFILE).description}",
        "sampling": "temperature 1, coupled",
        "cores shared by client and services": len(os.sched_getaffinity(0)),
    }
    whole = Report(question, conditions)
    for part in options.only:
        # A table of its own: the parts have few columns in common.
        report = Report(f"{question} ({part})", dict(conditions))
        parts[part](report, quick=options.quick)
        report.show()
        whole.rows += report.rows
        whole.checks += report.checks
        whole.conditions |= report.conditions
    if options.json:
        whole.write(options.json)
    return 0


def _load(text: str) -> tuple[float, int]:
    acceptance, _, requests = text.partition(":")
    return float(acceptance), int(requests)


def _by_acceptance(loads: Sequence[tuple[float, int]]) -> dict[float, list[int]]:
    result: dict[float, list[int]] = {}
    for acceptance, requests in loads:
        result.setdefault(acceptance, []).append(requests)
    return result


if __name__ == "__main__":
    sys.exit(main())

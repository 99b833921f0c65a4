"""Does the whole stack do on an emulated 70B what theory says?

The engines are emulated (profile a100-70b: verify 8 ms, draft 0.5 ms a token); gRPC, sessions, scheduling and the
controller are real. Parts: `grid` (speed-up over acceptance and K beside the formula), `load-step` (from 1 to 64
concurrent requests and back), `ahead` (drafting while the target verifies, also with a slow network), `lookup` (a
lookup before the draft pool, by how much of an answer is copied from its prompt), `places` (heads and a draft model in
the target and in the pool, in virtual time, beside `pilotfish plan`), `vocabulary` (a draft model of another vocabulary
in virtual time, at the acceptance of the pairs in results/vocabularies-*.json). `--time-scale 10` has `grid` on
hardware that is ten times as slow in everything, where this machine's processors hardly count; fewer cells, of more
rounds. (load.py has `auto` beside always off and always on.)
"""

import os
import sys
from collections.abc import Sequence
from functools import partial

from emulation.ahead import run_ahead
from emulation.client import PROFILE
from emulation.grid import run_grid
from emulation.load_step import run_load_step
from emulation.lookup import run_lookup
from emulation.places import run_places
from emulation.vocabulary import run_vocabulary
from shared.report import Report, parser

from pilotfish.emulation.profiles import load_profile

PARTS = {
    "grid": run_grid,
    "load-step": run_load_step,
    "ahead": run_ahead,
    "lookup": run_lookup,
    "places": run_places,
    "vocabulary": run_vocabulary,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="these parts")
    options_parser.add_argument("--time-scale", type=float, default=1.0, help="of grid (default 1)")
    options = options_parser.parse_args(arguments)
    parts = PARTS | {"grid": partial(run_grid, time_scale=options.time_scale)}
    question = "Does the stack do on an emulated 70B what theory says?"
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


if __name__ == "__main__":
    sys.exit(main())

"""Does speculation change what a client gets? Every case of tests/support/conformance.py, with it and without.

Asks a stack of its own for each of --proposers, or any server: `--url URL --on JSON --off JSON` with the fields that
turn speculation on and off there, or `--url URL --reference URL` with a second one that does not speculate.
"""

import json
from collections.abc import Callable
from typing import Any

import shared.checkout  # noqa: F401  # finds tests.support
from shared.report import Report, parser

from pilotfish.bench.proposers import parse_proposers
from pilotfish.config import load_config
from pilotfish.launch.local_stack import LocalStack
from tests.support.conformance import CASES, TIGHT_CACHE, RefusedError, Server, difference

DEFAULT_PROPOSERS = (
    *("auto", "ngram", "suffix-tree", "ngram-remote", "suffix-remote-tree", "ngram-in-target", "suffix-in-target-tree"),
    *(f"{name}=smollm2-135m-instruct" for name in ("model", "model-tree", "model-suffix")),
    *("eagle3-remote", "eagle3-remote-tree", "eagle3", "eagle3-tree", "eagle3-suffix", "eagle3-suffix-tree"),
    *(
        f"{name}=smollm2-135m-instruct-medusa"
        for name in ("medusa-remote", "medusa-remote-tree", "medusa", "medusa-tree")
    ),
)
EQUAL, NOT_SERVED = "equal", "not served"


def compare(report: Report, arm: str, plain: Server, drafted: Server) -> None:
    """A row for each case."""
    for name, case in CASES.items():
        expected, no_plain = _ask(case, plain)
        found_answers, no_drafted = _ask(case, drafted)
        if no_plain and no_drafted:
            found = f"{NOT_SERVED}: {no_plain}"
        elif no_plain or no_drafted:
            found = f"refused {'with' if no_drafted else 'without'} speculation only: {no_drafted or no_plain}"
        else:
            found = difference(expected, found_answers) or EQUAL
        report.row(arm=arm, case=name, found=found)
        print(f"{arm:28} {name:20} {found[:100]}", flush=True)


def _ask(case: Callable[[Server], list[Any]], server: Server) -> tuple[list[Any], str]:
    """What it answers, and why not."""
    try:
        return case(server), ""
    except RefusedError as error:
        return [], str(error)


def main() -> None:
    options_parser = parser(__doc__)
    options_parser.add_argument("--proposers", nargs="+", default=DEFAULT_PROPOSERS, help="NAME or NAME=MODEL each")
    options_parser.add_argument("--url", help="of a server, up to and without /v1")
    options_parser.add_argument("--reference", help="of a second one that does not speculate")
    options_parser.add_argument("--name", default="server", help="what the table calls it")
    options_parser.add_argument("--on", type=json.loads, default={}, help="fields of requests with speculation, JSON")
    options_parser.add_argument("--off", type=json.loads, default={}, help="and without")
    options = options_parser.parse_args()
    report = Report("Is an answer the same with speculation?", {"cases": len(CASES)})
    if options.url:
        plain = Server(options.reference or options.url, options.off)
        compare(report, options.name, plain, Server(options.url, options.on))
    else:
        for arm in parse_proposers(options.proposers):
            with LocalStack(load_config(overrides=(*arm.overrides, TIGHT_CACHE))) as stack:
                on: dict[str, Any] = {"mode": "on", "proposer": arm.request_name}
                plain = Server(stack.http_url, {"speculation": {"mode": "off"}})
                compare(report, arm.name, plain, Server(stack.http_url, {"speculation": on}))
    num_equal = sum(row["found"] == EQUAL for row in report.rows)
    num_not_served = sum(row["found"].startswith(NOT_SERVED) for row in report.rows)
    num_differing = len(report.rows) - num_equal - num_not_served
    report.check("cases that differ with speculation", num_differing, 0, unit="", kind="equal to")
    if not options.url:
        report.check("cases that are not served", num_not_served, 0, unit="", kind="equal to")
    report.finish(options, has_shown_rows=True)


if __name__ == "__main__":
    main()

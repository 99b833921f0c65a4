"""What does Ray Serve's HTTP proxy cost a client, beside the orchestrator's own listener?

`pilotfish up --ray` with `deployment.orchestrator.ingress_port`; the same streams through both, in turns.
"""

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence

import uvloop
from shared.asking import PROMPT_TOKENS, Heard, listen
from shared.report import Report, parser

from pilotfish.launch.specs import free_ports

PROFILES, STREAMS = ("instant", "h100-70b-tp4"), (1, 16)
COLUMNS = {
    "engines": "engines",
    "streams": "streams",
    "own_first_ms": "own: first ms",
    "proxy_first_ms": "proxy: first ms",
    "first_ratio": "ratio",
    "own_token_ms": "own: token ms",
    "proxy_token_ms": "proxy: token ms",
    "token_ratio": "ratio",
}
NUM_TOKENS = 64
READY = "Pilotfish is up"


@contextlib.contextmanager
def serving(profile: str) -> Iterator[dict[str, str]]:
    """The URLs of the own listener and of Serve's proxy."""
    ports = dict(zip(("own listener", "Serve's proxy"), free_ports(2), strict=True))
    settings = {
        "orchestrator.port": 0,
        "orchestrator.http.port": ports["own listener"],
        "deployment.orchestrator.ingress_port": ports["Serve's proxy"],
        "emulation.profile": profile,
    }
    options = [option for key, value in settings.items() for option in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "pilotfish.cli", "up", "--ray", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not any(READY in line for line in process.stdout):
                raise RuntimeError("pilotfish up --ray has ended")
            yield {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        finally:
            process.terminate()


async def measure(report: Report, profile: str, urls: dict[str, str], num_requests: int) -> None:
    """A row for each number of streams."""
    for num_streams in STREAMS:
        heard = {name: Heard() for name in urls}
        for turn in range(-1, num_requests // num_streams):
            for name, url in list(urls.items())[:: 1 if turn % 2 else -1]:
                each = await listen("HTTP", url, num_streams, num_tokens=NUM_TOKENS, speculation="off")
                if turn >= 0:  # the first warms up
                    heard[name].first_token_s += each.first_token_s
                    heard[name].total_s += each.total_s
        (own_first, own_token), (first, token) = (_medians_ms(each) for each in heard.values())
        report.row(
            engines=profile,
            streams=num_streams,
            own_first_ms=own_first,
            proxy_first_ms=first,
            first_ratio=first / own_first,
            own_token_ms=own_token,
            proxy_token_ms=token,
            token_ratio=token / own_token,
        )


def _medians_ms(heard: Heard) -> tuple[float, float]:
    """To the first token, and of each further one."""
    streams = zip(heard.first_token_s, heard.total_s, strict=True)
    per_token = [(total_s - first_s) / (NUM_TOKENS - 1) for first_s, total_s in streams]
    return 1e3 * statistics.median(heard.first_token_s), 1e3 * statistics.median(per_token)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    num_requests = 64 if options.quick else 200
    conditions = {"requests of each": num_requests, "prompt tokens": PROMPT_TOKENS, "output tokens": NUM_TOKENS}
    conditions["cores shared by all"] = len(os.sched_getaffinity(0))
    question = "What does Ray Serve's HTTP proxy cost?"
    report = Report(question, {"engines": "EMULATED", **conditions}, columns=COLUMNS)
    for profile in PROFILES:
        with serving(profile) as urls:
            uvloop.run(measure(report, profile, urls, num_requests))
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

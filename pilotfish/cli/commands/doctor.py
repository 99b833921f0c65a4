"""`pilotfish doctor`: what of this machine and its configuration would keep Pilotfish from working."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from pilotfish.cli.checks.architecture import check_architectures
from pilotfish.cli.checks.configuration import check_configuration, check_named_files
from pilotfish.cli.checks.finding import CheckFinding, Severity, worst
from pilotfish.cli.checks.hardware import check_hardware
from pilotfish.cli.checks.limits import check_limits
from pilotfish.cli.checks.model_cache import check_model_cache
from pilotfish.cli.checks.network import check_network
from pilotfish.cli.checks.replicas import check_replicas
from pilotfish.cli.console import output_console
from pilotfish.cli.errors import EXIT_FAILURE, fail_on_error
from pilotfish.cli.options import AsJson, ConfigFile, NoColor, Overrides
from pilotfish.config import Config

MARKS = {
    Severity.OK: ("✓", "green"),
    Severity.WARNING: ("!", "yellow"),
    Severity.PROBLEM: ("✗", "red"),
}
SUMMARIES = {
    Severity.OK: "Everything is well.",
    Severity.WARNING: "Pilotfish will work; see the warnings.",
    Severity.PROBLEM: "Something will not work; see the problems.",
}


@fail_on_error()
def doctor(
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> None:
    """Check the installation, configuration, limits, hardware, models, ports, proxies and replicas.

    Says of each whether it is well, and what to do where it is not. Exit code 1: there is a problem;
    warnings alone are 0.

    [bold]Examples[/]

      pilotfish doctor                                        this machine, with the default configuration

      pilotfish doctor --config pilotfish.yaml --set target.model=MODEL

      pilotfish doctor --json > report.json                   to send along with a question
    """
    console = output_console(no_color=no_color)
    findings = []
    for finding in examine(config_file, overrides or ()):
        findings.append(finding)
        if not as_json:
            _print(finding, console)
    verdict = worst(findings)
    if as_json:
        report = {"verdict": verdict, "findings": [dataclasses.asdict(finding) for finding in findings]}
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        console.print(SUMMARIES[verdict])
    if verdict is Severity.PROBLEM:
        raise typer.Exit(EXIT_FAILURE)


def examine(config_file: Path | None, overrides: Sequence[str]) -> Iterator[CheckFinding]:
    """Every check, as it is done. With a configuration that cannot be read the rest is checked with the defaults."""
    where = f"Python {platform.python_version()} at {sys.executable} on {platform.platform(terse=True)}"
    yield CheckFinding("python", Severity.OK, where)
    config, finding = check_configuration(config_file, overrides)
    yield finding
    if config is None:
        config = Config()
    yield from check_named_files(config)
    yield from check_limits(config)
    yield from check_hardware(config)
    yield from check_model_cache(config)
    yield from check_architectures(config)
    yield from check_network(config)
    yield from check_replicas(config)


def _print(finding: CheckFinding, console: Console) -> None:
    mark, style = MARKS[finding.verdict]
    console.print(Text.assemble((f"{mark} ", style), (finding.check, "bold"), f": {finding.found}"), soft_wrap=True)
    if finding.advice:
        console.print(Text(f"    → {finding.advice}", "" if finding.verdict is Severity.OK else style), soft_wrap=True)

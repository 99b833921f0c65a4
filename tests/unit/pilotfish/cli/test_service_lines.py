"""What `pilotfish up` prints, for people and for programs."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from pilotfish.cli.service_lines import JsonPrinter, Printer

READY = "target_service ready on 127.0.0.1:1234 (model m, deterministic yes)"


def events(printed: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_programs_get_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    printer = JsonPrinter("http://127.0.0.1:8000")
    printer.notice("EMULATED")
    printer.line("target_service", READY)
    printer.line("draft_service", "draft_service ready on 127.0.0.1:9")
    printer.line("serve", 'a "line"')
    printer.up("127.0.0.1:50051")
    printer.stopped()
    assert events(capsys.readouterr().out) == [
        {"event": "notice", "text": "EMULATED"},
        {
            "event": "ready",
            "service": "target_service",
            "address": "127.0.0.1:1234",
            "details": "model m, deterministic yes",
        },
        {"event": "ready", "service": "draft_service", "address": "127.0.0.1:9", "details": ""},
        {"event": "line", "child": "serve", "line": 'a "line"'},
        {"event": "up", "address": "127.0.0.1:50051", "http_url": "http://127.0.0.1:8000"},
        {"event": "stopped"},
    ]


def test_people_get_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(Console(width=200))
    printer.line("target_service", READY)
    printer.line("target_service", "loading ready on time")
    printer.up("127.0.0.1:1")
    printer.stopped()
    ready, other, up, hint, stopped = capsys.readouterr().out.splitlines()
    assert ready == f"✓ {READY}"
    assert other == "target_service | loading ready on time"
    assert up.startswith("Pilotfish is up on 127.0.0.1:1. Ctrl-C")
    assert "--address 127.0.0.1:1" in hint
    assert stopped == "stopped"

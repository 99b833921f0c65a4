"""What `pilotfish up` prints, for people and for programs."""

import json

import pytest

from pilotfish.cli.service_lines import JsonPrinter

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

"""What a load test may be asked for."""

import pytest

from pilotfish.bench.load.level import Level
from pilotfish.bench.load.settings import LoadSettings
from pilotfish.bench.load.trace import TraceEntry
from pilotfish.client.answer import GenerateOptions
from pilotfish.errors import ConfigError

TRACE = tuple(TraceEntry(index, 1, 1) for index in range(5))


def settings(**changes: object) -> LoadSettings:
    values: dict = {"levels": (Level("concurrency", 8),), "options": GenerateOptions(), "timeout_s": 1.0}
    return LoadSettings(**values | changes)


def test_ratios_are_over_plain_decoding_where_it_runs() -> None:
    assert settings(modes=("on", "off")).baseline == "off"
    assert settings(modes=("on", "auto")).baseline == "on"


def test_a_run_is_as_long_as_its_load_needs_unless_it_is_told() -> None:
    default, told = settings(), settings(num_requests=5, num_warm_up=0)
    closed, opened = Level("concurrency", 8), Level("rate", 10)
    assert (default.warm_up(closed), default.requests(closed)) == (8, 32)
    assert (default.warm_up(opened), default.requests(opened)) == (10, 300)
    assert (told.warm_up(closed), told.requests(closed)) == (0, 5)


def test_a_trace_is_used_up_but_for_its_warm_up() -> None:
    level = Level("trace", 1)
    assert settings(trace=TRACE, levels=(level,)).requests(level) == 5
    assert settings(trace=TRACE, levels=(level,), num_warm_up=2).requests(level) == 3
    assert settings(trace=TRACE, levels=(level,), num_requests=2).requests(level) == 2
    with pytest.raises(ConfigError, match="none is left after the warm-up"):
        settings(trace=TRACE, levels=(level,), num_warm_up=5).requests(level)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modes": ()}, "name some of off, on, auto"),
        ({"levels": ()}, "no load is given"),
        ({"levels": (Level("trace", 1),)}, "with synthetic prompts only"),
        ({"levels": (Level("trace", 1),), "trace": TRACE, "prompts": ("a",)}, "with synthetic prompts only"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**changes)

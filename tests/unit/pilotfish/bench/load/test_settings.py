"""What a load test may be asked for."""

from pilotfish.bench.load.settings import LoadSettings
from pilotfish.client.answer import GenerateOptions


def settings(**changes: object) -> LoadSettings:
    values: dict = {"concurrencies": (8,), "options": GenerateOptions(), "timeout_s": 1.0}
    return LoadSettings(**values | changes)


def test_ratios_are_over_plain_decoding_where_it_runs() -> None:
    assert settings(modes=("on", "off")).baseline == "off"
    assert settings(modes=("on", "auto")).baseline == "on"


def test_a_run_is_as_long_as_its_load_needs_unless_it_is_told() -> None:
    assert [settings().requests(concurrency) for concurrency in (1, 8)] == [16, 32]
    assert settings(num_requests=5).requests(8) == 5

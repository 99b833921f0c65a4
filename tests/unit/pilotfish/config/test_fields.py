import pytest

from pilotfish.config import config_from_dict, load_config
from pilotfish.config.fields import address_of


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1:5"), ("models.example", "models.example:5"), ("::1", "[::1]:5"), ("[::1]", "[::1]:5")],
)
def test_an_address_has_ipv6_in_brackets(host: str, address: str) -> None:
    assert address_of(host, 5) == address


@pytest.mark.parametrize("host", ["::", "[::]"])
def test_a_host_may_have_brackets(host: str) -> None:
    sections = {name: {"host": host} for name in ("target", "draft", "orchestrator")}
    config = config_from_dict({**sections, "telemetry": {"metrics_host": host}})
    hosts = (config.target.host, config.draft.host, config.orchestrator.host, config.orchestrator.http_host)
    assert {*hosts, config.telemetry.metrics_host} == {"::"}


def test_an_override_that_only_looks_like_a_mapping_is_text() -> None:
    assert load_config(None, ["orchestrator.host=::"]).orchestrator.host == "::"

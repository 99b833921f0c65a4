import pytest

from pilotfish.config import HttpConfig, OrchestratorConfig
from pilotfish.errors import ConfigError


def test_the_port_that_is_not_set_follows_grpc_s() -> None:
    assert OrchestratorConfig().http_port == 8000
    assert OrchestratorConfig(port=0).http_port == 0
    assert OrchestratorConfig(port=0, http=HttpConfig(port=8001)).http_port == 8001
    assert OrchestratorConfig(http=HttpConfig(port=-1)).http_port == -1


def test_the_host_that_is_not_set_is_grpc_s() -> None:
    assert OrchestratorConfig(host="0.0.0.0").http_host == "0.0.0.0"
    assert OrchestratorConfig(host="0.0.0.0", http=HttpConfig(host="127.0.0.1")).http_host == "127.0.0.1"


@pytest.mark.parametrize("values", [{"port": -2}, {"port": 65536}, {"max_choices": 0}, {"keep_alive_timeout_s": 0}])
def test_what_is_out_of_range_is_refused(values) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        HttpConfig(**values)

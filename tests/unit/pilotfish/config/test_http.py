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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cors_origins", "https://chat.example/"),
        ("cors_origins", "chat.example"),
        ("cors_origins", "https://chat.example/app"),
        ("allowed_hosts", "models.example:8000"),
        ("allowed_hosts", "http://models.example"),
        ("allowed_hosts", "models.example/"),
    ],
)
def test_what_no_request_says_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"orchestrator\.http\.{name}: '{value}' is not"):
        HttpConfig(**{name: (value,)})


def test_what_requests_say_is_taken() -> None:
    origins = ("*", "https://chat.example", "http://localhost:3000", "http://[::1]:3000", "chrome-extension://abcdef")
    HttpConfig(cors_origins=origins, allowed_hosts=("*", "*.example", "models.example", "pilotfish_api"))

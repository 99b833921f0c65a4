from pilotfish.config import HttpConfig, OrchestratorConfig


def test_the_port_that_is_not_set_follows_grpc_s() -> None:
    assert OrchestratorConfig().http_port == 8000
    assert OrchestratorConfig(port=0).http_port == 0
    assert OrchestratorConfig(port=0, http=HttpConfig(port=8001)).http_port == 8001
    assert OrchestratorConfig(http=HttpConfig(port=-1)).http_port == -1


def test_the_host_that_is_not_set_is_grpc_s() -> None:
    assert OrchestratorConfig(host="0.0.0.0").http_host == "0.0.0.0"
    assert OrchestratorConfig(host="0.0.0.0", http=HttpConfig(host="127.0.0.1")).http_host == "127.0.0.1"

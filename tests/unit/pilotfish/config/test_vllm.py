"""What a vLLM is told about Pilotfish."""

import pytest

from pilotfish.config.vllm import RemoteProposerConfig, remote_proposer_config
from pilotfish.errors import ConfigError


def test_without_settings_the_defaults_hold() -> None:
    assert remote_proposer_config(None, {}) == RemoteProposerConfig()
    assert remote_proposer_config({"somebody": "else"}, {"HOME": "/"}) == RemoteProposerConfig()


def test_additional_config_has_a_section_of_ours() -> None:
    config = remote_proposer_config(
        {"pilotfish": {"draft_addresses": ["a:1", "b:2"], "security": {"token_file": "/t"}, "draft_ahead": False}}, {}
    )
    assert config.draft_addresses == ("a:1", "b:2")
    assert config.security.token_file == "/t"
    assert config.draft_ahead == "off"


def test_the_environment_comes_first() -> None:
    variables = {
        "PILOTFISH_VLLM_DRAFT_ADDRESSES": "a:1, b:2",
        "PILOTFISH_VLLM_DRAFT_DEADLINE_MS": "7.5",
        "PILOTFISH_VLLM_SECURITY__TOKEN_FILE": "/token",
    }
    config = remote_proposer_config(
        {"pilotfish": {"draft_addresses": ["c:3"], "security": {"server_name": ""}}}, variables
    )
    assert config.draft_addresses == ("a:1", "b:2")
    assert config.draft_deadline_ms == 7.5
    assert config.security.token_file == "/token"


@pytest.mark.parametrize(
    ("section", "variables", "named"),
    [
        ({"adresses": ["a:1"]}, {}, "adresses"),
        ({"draft_addresses": ["a"]}, {}, "host:port"),
        ({"draft_addresses": []}, {}, "draft_addresses"),
        ({"draft_deadline_ms": 0}, {}, "draft_deadline_ms"),
        ({"mode": "auto"}, {}, "mode"),
        ({"security": {"certificate": "/c"}}, {}, "certificate"),
        ({}, {"PILOTFISH_VLLM_TELEMETRY__MAX_ROUND_SPANS": "9"}, "telemetry.max_round_spans"),
        ({}, {"PILOTFISH_VLLM_MODE__X": "1"}, "mode"),
        ({}, {"PILOTFISH_VLLM_NO_SUCH": "1"}, "no_such"),
        ({}, {"PILOTFISH_VLLM_MODE": "[1"}, "PILOTFISH_VLLM_MODE"),
    ],
)
def test_what_is_wrong_is_named(section: dict[str, object], variables: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        remote_proposer_config({"pilotfish": section}, variables)


def test_a_section_is_a_mapping() -> None:
    with pytest.raises(ConfigError, match="mapping"):
        remote_proposer_config({"pilotfish": "on"}, {})

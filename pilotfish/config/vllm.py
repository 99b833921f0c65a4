"""Configuration of pilotfish.integrations.vllm: it runs in a vLLM of somebody else's, which knows no file of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, TypeAdapter, ValidationError

from pilotfish.config.config import override_value
from pilotfish.config.fields import STRICT, require, yaml_word
from pilotfish.config.orchestrator import is_address
from pilotfish.config.security import InternalSecurityConfig
from pilotfish.config.telemetry import TracingConfig
from pilotfish.errors import ConfigError

VARIABLE_PREFIX = "PILOTFISH_VLLM_"
"""PILOTFISH_VLLM_DRAFT_DEADLINE_MS is draft_deadline_ms, PILOTFISH_VLLM_SECURITY__CA is security.ca."""
ADDITIONAL_CONFIG_KEY = "pilotfish"
"""Key in vLLM's additional_config."""


def _addresses(value: object) -> object:
    """Several in one word, as an environment variable holds them."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class RemoteProposerConfig:
    """`additional_config={"pilotfish": {...}}` of vLLM; PILOTFISH_VLLM_* variables override it."""

    __pydantic_config__ = STRICT

    draft_addresses: Annotated[tuple[str, ...], BeforeValidator(_addresses)] = ("127.0.0.1:50062",)
    """The `host:port` of each draft replica; `dns:///NAME:PORT` is every address of a name."""
    mode: Annotated[Literal["on", "off"], BeforeValidator(yaml_word)] = "on"
    """`off`: vLLM decodes plainly and nothing is connected."""
    draft_deadline_ms: PositiveFloat = 20.0
    """Maximum time a step of vLLM waits for drafts. About one decode step is right."""
    disable_by_batch_size: NonNegativeInt = 32
    """Steps with more rows ask for no drafts; 0: no limit. 32 rows with 8 draft tokens are 288 tokens, about what an
    H100 computes while it reads the weights."""
    draft_ahead: Annotated[Literal["auto", "off", "on"], BeforeValidator(yaml_word)] = "auto"
    """As speculation.draft_ahead."""
    draft_ahead_tokens: Annotated[int, Field(ge=0, le=256)] = 60
    """As speculation.draft_ahead_tokens."""
    tokenizer: str = ""
    """Folder of vLLM's tokenizer.json. Empty: found in vLLM's model folder or the hub's cache."""
    check_tokenizer: bool = True
    """Refuse to draft unless vLLM's tokenizer is shown to be the drafter's. A foreign drafter is slow, never wrong:
    vLLM verifies its tokens."""
    silence_timeout_s: Annotated[float, Field(ge=1)] = 3.0
    """As orchestrator.silence_timeout_s, for draft replicas."""
    security: InternalSecurityConfig = field(default_factory=InternalSecurityConfig)
    """The draft pool's security.internal."""
    telemetry: TracingConfig = field(default_factory=TracingConfig)
    """Tracing, as the services have it; their other keys of this section do nothing here and are refused."""

    def __post_init__(self) -> None:
        require(bool(self.draft_addresses), "draft_addresses must name a draft replica (host:port)")
        for address in self.draft_addresses:
            require(
                is_address(address),
                f"draft_addresses has {address!r}; it must be host:port, or dns:///NAME:PORT",
            )


_ADAPTER = TypeAdapter(RemoteProposerConfig)


def remote_proposer_config(
    additional_config: Mapping[str, Any] | None, variables: Mapping[str, str]
) -> RemoteProposerConfig:
    """What vLLM was started with, and above it the environment's PILOTFISH_VLLM_* among `variables`.

    Raises ConfigError, which names the key.
    """
    section = (additional_config or {}).get(ADDITIONAL_CONFIG_KEY) or {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"additional_config's {ADDITIONAL_CONFIG_KEY!r} must be a mapping of settings")
    values: dict[str, Any] = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in section.items()
    }
    for variable, text in sorted(variables.items()):
        if variable.startswith(VARIABLE_PREFIX):
            key = variable.removeprefix(VARIABLE_PREFIX).lower().replace("__", ".")
            override_value(values, key, text, f"${variable}")
    try:
        return _ADAPTER.validate_python(values)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, item['loc'])) or 'it'}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"the configuration of Pilotfish in vLLM: {'; '.join(problems)}") from None

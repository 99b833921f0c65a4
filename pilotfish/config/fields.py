"""What the sections share: how strict they are, and how they refuse a value."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from pilotfish.errors import ConfigError

STRICT = ConfigDict(extra="forbid")
"""Unknown keys are errors."""

Host = Annotated[str, AfterValidator(lambda text: text.strip("[]"))]
"""An address or a name to listen on; of IPv6 also in brackets."""
Port = Annotated[int, Field(ge=0, le=65535)]
"""0: a free one."""
OptionalPort = Annotated[int, Field(ge=-1, le=65535)]
"""-1: none."""
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]


def address_of(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def yaml_word(value: object) -> object:
    """`on` and `off` as they were written: YAML 1.1 reads them as booleans."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def require(holds: bool, message: str) -> None:
    """Raises ConfigError with the message unless it holds."""
    if not holds:
        raise ConfigError(message)

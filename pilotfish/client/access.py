"""How a client gets into an orchestrator that does not serve everybody."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc
import grpc.aio

from pilotfish.config import environment
from pilotfish.errors import ConfigError, UnavailableError
from pilotfish.rpc.channel import PUBLIC_CHANNEL_OPTIONS
from pilotfish.security.certificates import read_secret_file
from pilotfish.security.link_token import AUTHORIZATION_KEY, bearer_header

API_KEY = "PILOTFISH_API_KEY"
CA_FILE = "PILOTFISH_CA_FILE"
CLIENT_CERTIFICATE_FILE = "PILOTFISH_CLIENT_CERTIFICATE_FILE"
CLIENT_KEY_FILE = "PILOTFISH_CLIENT_KEY_FILE"
SYSTEM_CA = "system"
"""The authorities that the system trusts."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Empty values: the orchestrator asks for nothing."""

    api_key: str = field(default="", repr=False)
    ca_file: str = ""
    """PEM file of the authority of the orchestrator's certificate, or `system`. Empty: no TLS."""
    certificate_file: str = ""
    """The client's own, where the orchestrator asks for one."""
    key_file: str = ""
    server_name: str = ""
    """Name in the orchestrator's certificate. Empty: the host that is dialled."""

    @classmethod
    def from_environment(cls) -> Access:
        """Access as $PILOTFISH_API_KEY, $PILOTFISH_CA_FILE, $PILOTFISH_CLIENT_CERTIFICATE_FILE and
        $PILOTFISH_CLIENT_KEY_FILE say: not options, whose values every user of the machine sees."""
        names = environment()
        return cls(
            api_key=names.get(API_KEY, "").strip(),
            ca_file=names.get(CA_FILE, ""),
            certificate_file=names.get(CLIENT_CERTIFICATE_FILE, ""),
            key_file=names.get(CLIENT_KEY_FILE, ""),
        )

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call."""
        return ((AUTHORIZATION_KEY, bearer_header(self.api_key)),) if self.api_key else ()

    def open_channel(self, address: str) -> grpc.Channel:
        """A channel for blocking calls; connects when it is first used. Raises ConfigError for files that cannot be
        read."""
        if not self.ca_file:
            return grpc.insecure_channel(address, options=PUBLIC_CHANNEL_OPTIONS)
        return grpc.secure_channel(address, self._credentials(), options=self._options)

    def open_async_channel(self, address: str) -> grpc.aio.Channel:
        """A channel for asyncio, as `open_channel`'s."""
        if not self.ca_file:
            return grpc.aio.insecure_channel(address, options=PUBLIC_CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(address, self._credentials(), options=self._options)

    def unreachable(self, address: str) -> UnavailableError:
        """The error where nobody answers: what may be wrong, and what to do."""
        hint = f"if it speaks TLS there, set ${CA_FILE}"
        if self.ca_file:
            hint = f"${CA_FILE} is set: is it TLS there, with a certificate of that authority for this name?"
        return UnavailableError(
            f"nothing answers at {address}: start it with `pilotfish up`, or name another with --address; {hint}"
        )

    @property
    def _options(self) -> tuple[tuple[str, int | str], ...]:
        name = (("grpc.ssl_target_name_override", self.server_name),) if self.server_name else ()
        return (*PUBLIC_CHANNEL_OPTIONS, *name)

    def _credentials(self) -> grpc.ChannelCredentials:
        if bool(self.certificate_file) != bool(self.key_file):
            raise ConfigError(f"set ${CLIENT_CERTIFICATE_FILE} and ${CLIENT_KEY_FILE} together")
        return grpc.ssl_channel_credentials(
            None if self.ca_file == SYSTEM_CA else read_secret_file(self.ca_file),
            read_secret_file(self.key_file) if self.key_file else None,
            read_secret_file(self.certificate_file) if self.certificate_file else None,
        )


OPEN_ACCESS = Access()
"""Access to an orchestrator that serves everybody."""

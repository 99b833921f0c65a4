"""The configuration: whether it can be read, and whether the files that it names can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.config import Config, PublicSecurityConfig, default_config_file, load_config, setting_variables
from pilotfish.emulation.profiles import load_profile
from pilotfish.errors import ConfigError
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.security.certificates import CertificateFiles, CertificateSource
from pilotfish.security.key_ring import KeyRing


def check_configuration(file: Path | None, overrides: Sequence[str]) -> tuple[Config | None, CheckFinding]:
    """What the services would run with; None: they would not start."""
    try:
        config = load_config(file, overrides)
    except ConfigError as error:
        advice = "docs/configuration.md names every key; `pilotfish config` prints those in force"
        return None, CheckFinding("configuration", Severity.PROBLEM, str(error), advice)
    found = str(file or default_config_file() or "the defaults")
    if variables := setting_variables():
        found += f" with {', '.join(f'${name}' for name in variables)}"
    if overrides:
        found += f" with {len(overrides)} --set"
    return config, CheckFinding("configuration", Severity.OK, found)


def check_named_files(config: Config) -> Iterator[CheckFinding]:
    """Certificates, tokens, keys and hardware profiles, where the configuration names any."""
    internal, public = config.security.internal, config.security.public
    if internal.is_authenticated:
        yield _usable("link security", "certificates and token can be used", lambda: LinkSecurity(internal))
    if public.uses_tls:
        yield _usable("public certificate", public.certificate, lambda: CertificateSource(_files(public)))
    if public.needs_api_key:
        found = public.api_keys_file or "they can be used"
        yield _usable("api keys", found, lambda: KeyRing(public.api_keys_file, public.api_key_sha256))
    if profile := config.emulation.profile:
        yield _usable("hardware profile", profile, lambda: load_profile(profile))


def _files(public: PublicSecurityConfig) -> CertificateFiles:
    return CertificateFiles(public.certificate, public.private_key, public.client_ca, section="security.public")


def _usable(check: str, found: str, use: Callable[[], object]) -> CheckFinding:
    try:
        use()
    except ConfigError as error:
        return CheckFinding(check, Severity.PROBLEM, str(error), "mend the file, or name another in the configuration")
    return CheckFinding(check, Severity.OK, found)

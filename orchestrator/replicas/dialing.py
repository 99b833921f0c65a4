"""How this orchestrator dials replicas, and the tokenizer that they must have."""

from __future__ import annotations

from pathlib import Path

from orchestrator.replicas.directory import PoolName
from orchestrator.replicas.link import Connect, ReplicaLink
from pilotfish.config import Config
from pilotfish.emulation.tokenizer import emulated_tokenizer_folder
from pilotfish.models.store.pull import pull_tokenizer
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.handshake import Hello
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.rpc.stream import MuxStream

PEER_NAME = "orchestrator"


def dialer(pool: PoolName, tokenizer_fingerprint: str, security: LinkSecurity) -> Connect:
    """Dials replicas of `pool`; those with another tokenizer are refused in the handshake."""

    async def connect(address: str, link: ReplicaLink) -> MuxStream:
        return await MuxStream.connect(
            address,
            service=pool,
            hello=Hello(peer=PEER_NAME, tokenizer_fingerprint=tokenizer_fingerprint),
            on_events=link.on_events,
            on_load=link.on_load,
            on_lost=link.on_lost,
            security=security,
        )

    return connect


def load_tokenizer(config: Config) -> Tokenizer:
    """The target's, without its weights; that of an emulated target is always here.

    Raises ModelError kinds when it cannot be had, ConfigError for a chat template that cannot be read.
    """
    folder = Path(config.target.model)
    if config.emulation.is_on:
        folder = emulated_tokenizer_folder(config)
    elif not folder.is_dir():
        folder = pull_tokenizer(config.target.model, config.cache_dir)
    return Tokenizer.load(folder, config.orchestrator.chat_template)

"""How this orchestrator dials replicas, and what it learns from one before it has a tokenizer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orchestrator.replicas.directory import PoolName, ReplicaDirectory
from orchestrator.replicas.link import Connect, ReplicaLink
from orchestrator.replicas.pool import ReplicaPool
from pilotfish.config import Config
from pilotfish.emulation.tokenizer import emulated_tokenizer_folder
from pilotfish.errors import ConfigError, ModelError, PilotfishError
from pilotfish.models.store.adapter import CHAT_TEMPLATE
from pilotfish.models.store.pull import pull_tokenizer, tokenizer_folder
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


async def find_tokenizer(config: Config, directory: ReplicaDirectory, security: LinkSecurity) -> Tokenizer:
    """The target's tokenizer: the configured model's, else from the folder that a target names.

    That of an emulated target is always here.

    Raises ModelError when neither can be had, ConfigError for a chat template that cannot be read.
    """
    try:
        return await asyncio.to_thread(_configured_tokenizer, config)
    except ConfigError:
        raise
    except PilotfishError as error:
        folder = await _folder_of_a_target(directory, security, config.orchestrator.connect_timeout_s)
        if not folder:
            raise
        try:
            return await asyncio.to_thread(Tokenizer.load, folder, config.orchestrator.chat_template)
        except PilotfishError:
            raise ModelError(f"{error}; the target's own folder {folder} cannot be read either") from error


def _configured_tokenizer(config: Config) -> Tokenizer:
    folder = Path(config.target.model)
    if config.emulation.is_on:
        folder = emulated_tokenizer_folder(config)
    elif not folder.is_dir():
        folder = pull_tokenizer(config.target.model, config.cache_dir)
    # A tokenizer needs no weights, so a local folder is taken as it is.
    return Tokenizer.load(folder, _chat_template(config))


def _chat_template(config: Config) -> str:
    """The file of the chat template in place of the model's: an adapter was trained with its own."""
    if config.orchestrator.chat_template or not config.target.lora or config.emulation.is_on:
        return config.orchestrator.chat_template
    own = tokenizer_folder(config.target.lora, config.cache_dir) / CHAT_TEMPLATE
    return str(own) if own.is_file() else ""


async def _folder_of_a_target(directory: ReplicaDirectory, security: LinkSecurity, timeout_s: float) -> str:
    """Where a target says its tokenizer is; empty if it does not say, or none can be reached."""
    if not directory.replicas("target"):
        return ""
    pool = ReplicaPool("target", directory, dialer("target", "", security))
    pool.start()
    try:
        return (await pool.connected(timeout_s)).model.tokenizer_path
    except PilotfishError:
        return ""
    finally:
        await pool.close()

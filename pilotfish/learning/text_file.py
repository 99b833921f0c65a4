"""The bytes of a text's file: a mark, and the text with a check sum, or encrypted (AES-256-GCM)."""

from __future__ import annotations

import base64
import binascii
import secrets
import zlib
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pilotfish.errors import ConfigError
from pilotfish.learning.record import LearnedText

_PLAIN, _ENCRYPTED = b"pilotfish text 1\n", b"pilotfish text 1 aes-gcm\n"
_KEY_BYTES, _NONCE_BYTES, _SUM_BYTES = 32, 12, 4

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LearnedText)


def read_key(path: Path) -> bytes:
    """The key in a file. Raises ConfigError, which tells nothing of what the file holds."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"draft.learning.key_file {path} cannot be read: {error.strerror}") from None
    if len(content) == _KEY_BYTES:
        return content
    try:
        key = base64.b64decode(content.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigError(
            f"draft.learning.key_file {path} must hold {_KEY_BYTES} bytes, as they are or in base64: "
            f"head -c {_KEY_BYTES} /dev/urandom | base64 > {path}"
        )
    return key


def encode_text(text: LearnedText, key: bytes | None) -> bytes:
    """The file's content; encrypted if there is a key."""
    body = _encoder.encode(text)
    if key is None:
        return _PLAIN + zlib.crc32(body).to_bytes(_SUM_BYTES) + body
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return _ENCRYPTED + nonce + AESGCM(key).encrypt(nonce, body, _ENCRYPTED)


def decode_text(content: bytes, key: bytes | None) -> LearnedText:
    """Raises ValueError, saying what is wrong. With a key only what was encrypted with it is taken."""
    return _decoder.decode(_body(content, key))  # its errors are ValueErrors


def _body(content: bytes, key: bytes | None) -> bytes:
    if content.startswith(_ENCRYPTED):
        if key is None:
            raise ValueError("it is encrypted, and draft.learning.key_file is not set")
        nonce, sealed = _cut(content.removeprefix(_ENCRYPTED), _NONCE_BYTES)
        try:
            return AESGCM(key).decrypt(nonce, sealed, _ENCRYPTED)
        except (InvalidTag, ValueError):
            raise ValueError("it is torn, or encrypted with another key than draft.learning.key_file") from None
    if not content.startswith(_PLAIN):
        raise ValueError("it is no text of this version of Pilotfish")
    if key is not None:
        raise ValueError("it is not encrypted, and draft.learning.key_file is set")
    check_sum, body = _cut(content.removeprefix(_PLAIN), _SUM_BYTES)
    if zlib.crc32(body).to_bytes(_SUM_BYTES) != check_sum:
        raise ValueError("it is torn")
    return body


def _cut(content: bytes, at: int) -> tuple[bytes, bytes]:
    return content[:at], content[at:]

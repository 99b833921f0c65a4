import pytest

from pilotfish.errors import HandshakeError
from pilotfish.rpc.handshake import PROTOCOL_VERSION, Hello, Welcome, check_handshake
from pilotfish.types import Limits, ModelInfo


def welcome(fingerprint: str = "a" * 64, protocol_version: int = PROTOCOL_VERSION) -> Welcome:
    model = ModelInfo(
        model_id="small", tokenizer_fingerprint=fingerprint, vocab_size=10, max_context_tokens=100, deterministic=True
    )
    limits = Limits(max_draft_tokens=4, max_sequences=2)
    return Welcome(model=model, limits=limits, replica_id="replica-1", protocol_version=protocol_version)


@pytest.mark.parametrize(("ours", "theirs"), [(2, 1), (1, 2), (7, 7)])
def test_neighbouring_versions_fit(ours: int, theirs: int) -> None:
    check_handshake(Hello(peer="o", protocol_version=ours), welcome(protocol_version=theirs))


@pytest.mark.parametrize(("ours", "theirs"), [(1, 3), (3, 1), (0, 1), (1, 0)])
def test_versions_further_apart_are_refused_and_both_are_named(ours: int, theirs: int) -> None:
    """0 is what a peer says that states no version."""
    with pytest.raises(HandshakeError, match=rf"o speaks .* version {ours}, replica replica-1 version {theirs}"):
        check_handshake(Hello(peer="o", protocol_version=ours), welcome(protocol_version=theirs))


def test_tokenizers_must_be_equal_and_both_are_named() -> None:
    with pytest.raises(HandshakeError, match=r"o has tokenizer bbbbbbbbbbbb, .* \(model small\) has aaaaaaaaaaaa:"):
        check_handshake(Hello(peer="o", tokenizer_fingerprint="b" * 64), welcome())


def test_a_replica_without_fingerprint_does_not_pass_for_any() -> None:
    with pytest.raises(HandshakeError, match=r"has \(none\)"):
        check_handshake(Hello(peer="o", tokenizer_fingerprint="b" * 64), welcome(fingerprint=""))

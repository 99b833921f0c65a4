import msgspec
import pytest

from orchestrator.replicas.pool import ModelReference
from pilotfish.errors import HandshakeError
from pilotfish.types import ModelInfo

MODEL = ModelInfo(model_id="m", tokenizer_fingerprint="f", vocab_size=10, max_context_tokens=100, dtype="bfloat16")


def test_equal_targets_are_taken() -> None:
    reference = ModelReference()
    reference.check(MODEL)
    reference.check(msgspec.structs.replace(MODEL, tokenizer_path="/elsewhere"))


@pytest.mark.parametrize(
    ("name", "value"), [("model_id", "n"), ("vocab_size", 11), ("max_context_tokens", 99), ("dtype", "float32")]
)
def test_a_target_that_differs_from_the_first_is_refused(name: str, value: object) -> None:
    reference = ModelReference()
    reference.check(MODEL)
    with pytest.raises(HandshakeError, match=f"{name} {value!r}"):
        reference.check(msgspec.structs.replace(MODEL, **{name: value}))

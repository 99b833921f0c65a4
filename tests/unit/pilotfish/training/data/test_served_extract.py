"""Samples of a running target are those that extraction computes here, whatever comes between."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.config import InternalSecurityConfig
from pilotfish.errors import AuthenticationError, HandshakeError, ResourceExhaustedError, UnavailableError
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.rpc.link_security import OPEN_LINKS, LinkSecurity
from pilotfish.security.link_token import write_new_token
from pilotfish.training.data.conversations import Conversation
from pilotfish.training.data.extract import FeatureExtractor
from pilotfish.training.data.samples import Sample
from pilotfish.training.data.served_extract import ServedExtractor
from pilotfish.training.data.target_states import TargetStates, WantedStates
from tests.support.served_target import ServedTarget
from tests.support.tiny_llama import PRINTABLE_VOCAB_SIZE, save_printable_tokenizer, tiny_llama

LAYERS = (2, 2, 1, 4)
CONTEXT = 1400


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    sizes = {"vocab_size": PRINTABLE_VOCAB_SIZE, "num_hidden_layers": 4, "max_position_embeddings": CONTEXT}
    return tiny_llama(5, spread=4, **sizes, bos_token_id=None, eos_token_id=None)


@pytest.fixture(scope="module")
def folder(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "model"
    model.save_pretrained(path)
    save_printable_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[ServedTarget]:
    with ServedTarget(folder, feature_layers=[4, 0, 2, 1]) as target:
        yield target


def wanted(folder: Path, served: ServedTarget, **changes: object) -> WantedStates:
    values = {
        "address": served.address,
        "model_id": folder.name,
        "tokenizer_fingerprint": tokenizer_fingerprint(folder),
        "vocab_size": PRINTABLE_VOCAB_SIZE,
        "hidden_size": 32,
        "layers": LAYERS,
    }
    return WantedStates(**{**values, **changes})


def extract(
    what: WantedStates,
    model: LlamaForCausalLM,
    conversations: Sequence[Conversation],
    *,
    security: LinkSecurity = OPEN_LINKS,
    num_retries: int = 1,
) -> list[Sample]:
    waits = [0.0] * num_retries
    with ServedExtractor(what, model.lm_head, security, 1280, retry_waits_s=waits) as extractor:
        return extractor.extract(conversations)


def conversation(length: int, prompt_len: int, seed: int = 0) -> Conversation:
    draw = torch.Generator().manual_seed(seed)
    return Conversation(prompt_len, torch.randint(PRINTABLE_VOCAB_SIZE, (length,), generator=draw).tolist())


SHORT = [conversation(length, prompt_len, length) for length, prompt_len in ((5, 2), (33, 32), (17, 1), (300, 40))]


def expected(model: LlamaForCausalLM, conversations: Sequence[Conversation]) -> list[Sample]:
    decoder = TransformersDecoder(model, deterministic=False, max_context_tokens=CONTEXT)
    extractor = FeatureExtractor(decoder, LAYERS[:3], 1280)
    with torch.inference_mode():
        return list(extractor.extract(conversations))


def check(samples: Sequence[Sample], theirs: Sequence[Sample]) -> None:
    """Hidden states travel in bfloat16; what follows from them is as exact as they are."""
    for sample, their in zip(samples, theirs, strict=True):
        assert sample.prompt_len == their.prompt_len
        assert sample.token_ids.tolist() == their.token_ids.tolist()
        for name in ("features", "answer_hidden"):
            own, other = getattr(sample, name), getattr(their, name)
            assert own.dtype == torch.bfloat16
            torch.testing.assert_close(own.float(), other, rtol=2**-8, atol=1e-5)
        torch.testing.assert_close(sample.log_mass, their.log_mass, rtol=0.01, atol=0.05)
        agrees = sample.choices == their.choices
        assert agrees.float().mean() > 0.98, "but for near ties"
        in_prompt = torch.arange(len(agrees)) < their.prompt_len - 1
        assert bool((sample.choices[in_prompt] == -1).all())


def test_samples_are_those_of_extraction(folder: Path, model: LlamaForCausalLM, served: ServedTarget) -> None:
    """Short texts, texts of several pieces, one that is cut, and one whose prompt is too long."""
    texts = [*SHORT, conversation(1024, 1000, 7), conversation(1100, 200, 8), conversation(1390, 1200, 9)]
    check(extract(wanted(folder, served), model, [*texts, conversation(1390, 1280)]), expected(model, texts))


def test_wide_targets_are_read_in_smaller_pieces(
    folder: Path, model: LlamaForCausalLM, served: ServedTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilotfish.training.data.target_states._PIECE_BYTES", 32 * 32 * 2 * 4)  # 32 tokens
    lengths: list[int] = []
    monkeypatch.setattr(TargetStates, "_decode", noting(lengths, TargetStates._decode))
    check(extract(wanted(folder, served), model, SHORT), expected(model, SHORT))
    assert max(lengths) == 32


def noting(lengths: list[int], decode):
    def noted(self, verdict, first, end):
        lengths.append(end - first)
        return decode(self, verdict, first, end)

    return noted


def test_a_context_that_is_full_is_left_two_tokens(model: LlamaForCausalLM, tmp_path: Path) -> None:
    """The token that is decoded, and the one that would end the sequence."""
    model.config.max_position_embeddings, before = 64, model.config.max_position_embeddings
    model.save_pretrained(tmp_path)
    model.config.max_position_embeddings = before
    save_printable_tokenizer(tmp_path)
    with ServedTarget(tmp_path, feature_layers=[2, 1, 4]) as target:
        samples = extract(wanted(tmp_path, target), model, [conversation(100, 30), conversation(100, 62)])
    assert [len(sample.token_ids) for sample in samples] == [62]
    check(samples, expected(model, [Conversation(30, conversation(100, 30).token_ids[:62])]))


def test_a_target_that_comes_back_is_asked_for_the_rest(
    folder: Path, model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [conversation(20, 5, seed) for seed in range(20)]
    reads: list[tuple[int, ...]] = []
    read = TargetStates.read
    with ServedTarget(folder, feature_layers=list(dict.fromkeys(LAYERS))) as target:

        async def interrupted(self: TargetStates, token_ids: Sequence[int]) -> torch.Tensor:
            states = await read(self, token_ids)
            reads.append(tuple(token_ids))
            if len(reads) == 8:
                target.stop()
                target.start()
            return states

        monkeypatch.setattr(TargetStates, "read", interrupted)
        check(extract(wanted(folder, target), model, texts), expected(model, texts))
    assert len(reads) < 2 * len(texts), "what was done is not done again"


def test_a_target_that_stays_away(folder: Path, model: LlamaForCausalLM) -> None:
    with ServedTarget(folder, feature_layers=[2, 1, 4]) as target:
        target.stop()
        with pytest.raises(UnavailableError, match="run the same command again when the target is back"):
            extract(wanted(folder, target), model, SHORT)


def test_a_text_that_the_target_has_no_room_for(folder: Path, model: LlamaForCausalLM) -> None:
    with ServedTarget(folder, kv_cache_tokens=256, feature_layers=[2, 1, 4]) as target:
        check(extract(wanted(folder, target), model, SHORT[:3]), expected(model, SHORT[:3]))
        with pytest.raises(ResourceExhaustedError, match=r"raise engine\.kv_cache_tokens\. What was done is kept"):
            extract(wanted(folder, target), model, SHORT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer_fingerprint": "another"}, r"pilotfish train has tokenizer another, .* the same tokenizer"),
        ({"vocab_size": 90}, "vocabulary of 96 tokens, --target one of 90: name the model that is served there"),
        (
            {"layers": (2, 3, 5, 8)},
            r"\(model\) keeps layers \[4, 0, 2, 1\]: start it with target.feature_layers: \[2, 3, 5, 8\]",
        ),
        ({"hidden_size": 64}, r"sent hidden states that --target does not have .* is it the same model\?"),
    ],
)
def test_a_target_that_is_another(
    folder: Path, model: LlamaForCausalLM, served: ServedTarget, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(HandshakeError, match=message):
        extract(wanted(folder, served, **changes), model, SHORT)


@pytest.mark.parametrize(("name", "is_told"), [("model", False), ("model-instruct", True)])
def test_a_target_of_another_name_is_told(
    folder: Path, model: LlamaForCausalLM, served: ServedTarget, caplog, name: str, is_told: bool
) -> None:
    extract(wanted(folder, served, model_id=name), model, SHORT)
    assert (f"is not named {name}" in caplog.text) is is_told


def test_a_target_that_keeps_nothing(folder: Path, model: LlamaForCausalLM) -> None:
    with (
        ServedTarget(folder) as target,
        pytest.raises(
            HandshakeError, match=r"keeps no hidden states: start it with target.feature_layers: \[2, 1, 4\]"
        ),
    ):
        extract(wanted(folder, target), model, SHORT)


def test_a_target_asks_who_it_is(folder: Path, model: LlamaForCausalLM, tmp_path: Path) -> None:
    write_new_token(tmp_path / "token")
    security = LinkSecurity(InternalSecurityConfig(token_file=str(tmp_path / "token")))
    with ServedTarget(folder, security=security, feature_layers=[2, 1, 4]) as target:
        assert len(extract(wanted(folder, target), model, SHORT, security=security)) == len(SHORT)
        with pytest.raises(AuthenticationError):
            extract(wanted(folder, target), model, SHORT)
